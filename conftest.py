"""Every pytest run in this repository has the judge as a plugin: see `grader/judge/plugin.py`."""

pytest_plugins = ["grader.judge.plugin"]
