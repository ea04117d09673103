"""What a release is made of: metadata that is true wherever the repository lies."""

from __future__ import annotations

import pytest
import yaml

from hatch_build import portable, urls
from tests.support.conda_versions import ROOT

ADDRESS = "https://host.example/owner/name"
DOCUMENT = """\
![A board](notebooks/images/board.png)

[Use it](docs/USING.md#ranks), [NumPy](https://numpy.org), [below](#below),
<img alt="x" src="a.png">

```
rows[0](x)
```
"""


def test_an_address_makes_links_and_pictures_absolute_at_the_tag() -> None:
    made = portable(DOCUMENT, ADDRESS, "v1.2.0")
    assert f"![A board]({ADDRESS}/raw/v1.2.0/notebooks/images/board.png)" in made
    assert f"[Use it]({ADDRESS}/blob/v1.2.0/docs/USING.md#ranks), [NumPy](https://numpy" in made
    assert f'[below](#below),\n<img alt="x" src="{ADDRESS}/raw/v1.2.0/a.png">' in made
    assert "\nrows[0](x)\n" in made
    assert urls(ADDRESS, "v1.2.0")["Changelog"] == f"{ADDRESS}/blob/v1.2.0/CHANGELOG.md"


def test_without_an_address_no_link_leads_nowhere() -> None:
    made = portable(DOCUMENT, "", "v1.2.0")
    assert made.strip().startswith("Use it, [NumPy](https://numpy.org), [below](#below),")
    assert "png" not in made
    assert urls("", "v1.2.0") == {}


@pytest.mark.parametrize("address", ["", ADDRESS])
def test_nothing_relative_is_left_of_the_readme(address: str) -> None:
    made = portable((ROOT / "README.md").read_text(), address, "v1.2.0")
    assert len(made) > 1000
    # Once more changes nothing: all that had to be found was found.
    assert portable(made, ADDRESS, "v0") == made
    assert made.count("](") > 0 or not address


def test_the_job_that_may_publish_runs_nothing_of_this_repository() -> None:
    release = yaml.safe_load((ROOT / ".github/workflows/release.yml").read_text())
    jobs = release["jobs"]
    assert release["permissions"] == {"contents": "read"}
    assert [name for name, job in jobs.items() if "permissions" in job] == ["publish"]
    publish = jobs["publish"]
    assert publish["permissions"] == {"id-token": "write"}
    assert publish["needs"] == "build"
    actions = [step["uses"].partition("@")[0] for step in publish["steps"]]
    assert actions == ["actions/download-artifact", "pypa/gh-action-pypi-publish"]
    assert all("timeout-minutes" in job for job in jobs.values())
