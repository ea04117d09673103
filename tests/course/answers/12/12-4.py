SETUP = "import os\nimport pickle\nfrom pathlib import Path\n\nimport torch\n"

WRONG = {
    "saves nothing": (
        """
def resume(path, steps, step):
    state = None
    for i in range(steps):
        state = step(i, state)
    return state
""",
        "The second run begins at step 0",
    ),
    "saves at the end": (
        """
def resume(path, steps, step):
    now = {"next": 0, "state": None}
    if os.path.exists(path):
        now = torch.load(path, weights_only=True)
    state = now["state"]
    for i in range(now["next"], steps):
        state = step(i, state)
    torch.save({"next": steps, "state": state}, f"{path}.new")
    os.replace(f"{path}.new", path)
    return state
""",
        "The second run begins at step 0",
    ),
    "does not load": (
        """
def resume(path, steps, step):
    state = None
    for i in range(steps):
        state = step(i, state)
        torch.save({"next": i + 1, "state": state}, f"{path}.new")
        os.replace(f"{path}.new", path)
    return state
""",
        "The second run begins at step 0",
    ),
    "loads what is not there": (
        """
def resume(path, steps, step):
    now = torch.load(path, weights_only=True)
    for i in range(now["next"], steps):
        now = {"next": i + 1, "state": step(i, now["state"])}
        torch.save(now, f"{path}.new")
        os.replace(f"{path}.new", path)
    return now["state"]
""",
        "At the first start there is no file",
    ),
    "saves before the step": (
        """
def resume(path, steps, step):
    now = {"next": 0, "state": None}
    if os.path.exists(path):
        now = torch.load(path, weights_only=True)
    state = now["state"]
    for i in range(now["next"], steps):
        torch.save({"next": i + 1, "state": state}, f"{path}.new")
        os.replace(f"{path}.new", path)
        state = step(i, state)
    return state
""",
        "The killed step is left out",
    ),
    "goes on one too far": (
        """
def resume(path, steps, step):
    now = {"next": 0, "state": None}
    if os.path.exists(path):
        now = torch.load(path, weights_only=True)
        now["next"] += 1
    for i in range(now["next"], steps):
        now = {"next": i + 1, "state": step(i, now["state"])}
        torch.save(now, f"{path}.new")
        os.replace(f"{path}.new", path)
    return now["state"]
""",
        "The killed step is left out",
    ),
    "saves the number of the step": (
        """
def resume(path, steps, step):
    now = {"next": 0, "state": None}
    if os.path.exists(path):
        now = torch.load(path, weights_only=True)
    for i in range(now["next"], steps):
        now = {"next": i, "state": step(i, now["state"])}
        torch.save(now, f"{path}.new")
        os.replace(f"{path}.new", path)
    return now["state"]
""",
        "A step is done twice",
    ),
    "forgets the state": (
        """
def resume(path, steps, step):
    start, state = 0, None
    if os.path.exists(path):
        start = torch.load(path, weights_only=True)["next"]
    for i in range(start, steps):
        state = step(i, state)
        torch.save({"next": i + 1, "state": state}, f"{path}.new")
        os.replace(f"{path}.new", path)
    return state
""",
        "It goes on with the right step, but",
    ),
    "saves in place": (
        """
def resume(path, steps, step):
    now = {"next": 0, "state": None}
    if os.path.exists(path):
        now = torch.load(path, weights_only=True)
    for i in range(now["next"], steps):
        now = {"next": i + 1, "state": step(i, now["state"])}
        torch.save(now, path)
    return now["state"]
""",
        "The kill came in the middle of a save",
    ),
    "saves in place and hopes": (
        """
def resume(path, steps, step):
    try:
        now = torch.load(path, weights_only=True)
    except Exception:
        now = {"next": 0, "state": None}
    for i in range(now["next"], steps):
        now = {"next": i + 1, "state": step(i, now["state"])}
        torch.save(now, path)
    return now["state"]
""",
        "The kill came in the middle of a save",
    ),
    "writes in place what it has made": (
        """
def resume(path, steps, step):
    now = {"next": 0, "state": None}
    if os.path.exists(path):
        now = pickle.loads(Path(path).read_bytes())
    for i in range(now["next"], steps):
        now = {"next": i + 1, "state": step(i, now["state"])}
        content = pickle.dumps(now)
        Path(path).write_bytes(content)
    return now["state"]
""",
        "The kill came in the middle of a save",
    ),
    "moves the old one away first": (
        """
def resume(path, steps, step):
    now = {"next": 0, "state": None}
    if os.path.exists(path):
        now = torch.load(path, weights_only=True)
    for i in range(now["next"], steps):
        now = {"next": i + 1, "state": step(i, now["state"])}
        if os.path.exists(path):
            os.replace(path, f"{path}.old")
        torch.save(now, path)
    return now["state"]
""",
        "The kill came in the middle of a save",
    ),
    "not after the last step": (
        """
def resume(path, steps, step):
    now = {"next": 0, "state": None}
    if os.path.exists(path):
        now = torch.load(path, weights_only=True)
    state = now["state"]
    for i in range(now["next"], steps):
        torch.save({"next": i, "state": state}, f"{path}.new")
        os.replace(f"{path}.new", path)
        state = step(i, state)
    return state
""",
        "A start after the last step",
    ),
    "returns nothing": (
        """
def resume(path, steps, step):
    now = {"next": 0, "state": None}
    if os.path.exists(path):
        now = torch.load(path, weights_only=True)
    for i in range(now["next"], steps):
        now = {"next": i + 1, "state": step(i, now["state"])}
        torch.save(now, f"{path}.new")
        os.replace(f"{path}.new", path)
""",
        "The last state is not returned",
    ),
    "prints": (
        """
def resume(path, steps, step):
    print(list(range(steps)))
""",
        "It does not take the steps",
    ),
}

ANOTHER = """
def resume(path, steps, step):
    try:
        start, state = torch.load(path).values()
    except FileNotFoundError:
        start, state = 0, None
    while start < steps:
        state = step(start, state)
        start += 1
        new = Path(path).with_suffix(".draft")
        with open(new, "wb") as file:
            torch.save({"next": start, "state": state}, file)
            file.flush()
            os.fsync(file.fileno())
        new.rename(path)
    return state
"""
