SETUP = "import os\nimport re\n\nimport torch\n"

WRONG = {
    "runs what it reads": (
        """
def newest(folder):
    found = (re.fullmatch(r"step-(\\d+)\\.pt", name) for name in os.listdir(folder))
    for match in sorted(filter(None, found), key=lambda m: int(m[1]), reverse=True):
        try:
            torch.load(os.path.join(folder, match[0]), weights_only=False)
            return match[0]
        except Exception:
            continue
""",
        "A file has run code",
    ),
    "takes drafts": (
        """
def newest(folder):
    found = (re.match(r"step-(\\d+)\\.pt", name) for name in os.listdir(folder))
    for match in sorted(filter(None, found), key=lambda m: int(m[1]), reverse=True):
        try:
            torch.load(os.path.join(folder, match.string), weights_only=True)
            return match.string
        except Exception:
            continue
""",
        "step-12.pt.tmp is a draft",
    ),
    "does not try": (
        """
def newest(folder):
    found = (re.fullmatch(r"step-(\\d+)\\.pt", name) for name in os.listdir(folder))
    matches = sorted(filter(None, found), key=lambda m: int(m[1]))
    return matches[-1][0] if matches else None
""",
        "That file cannot be loaded",
    ),
    "sorts text": (
        """
def newest(folder):
    for name in sorted(os.listdir(folder), reverse=True):
        try:
            if name.endswith(".pt"):
                torch.load(os.path.join(folder, name), weights_only=True)
                return name
        except Exception:
            continue
""",
        "As text, step-9 comes after step-10",
    ),
    "goes by the time": (
        """
def newest(folder):
    paths = [os.path.join(folder, n) for n in os.listdir(folder) if n.endswith(".pt")]
    for path in sorted(paths, key=os.path.getmtime, reverse=True):
        try:
            torch.load(path, weights_only=True)
            return os.path.basename(path)
        except Exception:
            continue
""",
        "step-2.pt was copied last",
    ),
    "no try": (
        """
def newest(folder):
    found = (re.fullmatch(r"step-(\\d+)\\.pt", name) for name in os.listdir(folder))
    for match in sorted(filter(None, found), key=lambda m: int(m[1]), reverse=True):
        torch.load(os.path.join(folder, match[0]), weights_only=True)
        return match[0]
""",
        "One file that cannot be loaded ends",
    ),
    "no answer for an empty folder": (
        """
def newest(folder):
    found = (re.fullmatch(r"step-(\\d+)\\.pt", name) for name in os.listdir(folder))
    good = []
    for match in filter(None, found):
        try:
            torch.load(os.path.join(folder, match[0]), weights_only=True)
            good.append(int(match[1]))
        except Exception:
            continue
    return f"step-{max(good)}.pt"
""",
        "In a folder without checkpoints",
    ),
}

ANOTHER = """
from pathlib import Path


def newest(folder):
    best, name = -1, None
    for path in Path(folder).glob("step-*.pt"):
        step = int(path.stem.removeprefix("step-"))
        try:
            torch.load(path, weights_only=True)
        except Exception:
            step = -1
        if step > best:
            best, name = step, path.name
    return name
"""
