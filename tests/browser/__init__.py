"""Drive JupyterLab in a real browser, as a learner does."""
