"""When a commit claims to be made is read, and nothing of the repository is run or followed."""

import os
import subprocess
from datetime import UTC, datetime
from pathlib import Path

import pytest

from grader.batch import commit as commit_module
from grader.batch.commit import committed_at

AT = datetime(2026, 10, 2, 21, 58, 3, tzinfo=UTC)
STAMP = "@1790978283"  # date -u -d @1790978283


def git(folder: Path, *arguments: str, at: str = STAMP) -> None:
    dates = {"GIT_COMMITTER_DATE": f"{at} +0200", "GIT_AUTHOR_DATE": "@5 +0000"}
    names = {f"GIT_{who}_{what}": "committer" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
    run = ["git", "-c", "init.defaultBranch=main", *arguments]
    environment = {"PATH": os.environ["PATH"], "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1"}
    subprocess.run(run, cwd=folder, check=True, capture_output=True, env=environment | dates | names)


@pytest.fixture
def repository(tmp_path):
    """A student's repository with one commit, whose message looks like a header."""
    folder = tmp_path / "kernels-ada"
    folder.mkdir()
    git(folder, "init")
    (folder / "gelu.py").write_text("x = 1\n")
    git(folder, "add", ".")
    git(folder, "commit", "-m", "committer x <y> 5 +0000\n\ncommitter x <y> 5 +0000")
    return folder


@pytest.fixture
def touched(tmp_path):
    """A file that a program which must not run would write."""
    return tmp_path / "touched"


def test_the_committer_date_is_read_from_loose_and_from_packed_objects(repository):
    assert committed_at(repository) == AT
    git(repository, "gc")
    assert (repository / ".git" / "packed-refs").is_file()
    assert committed_at(repository) == AT
    git(repository, "checkout", "--detach")
    assert committed_at(repository) == AT


def test_a_shallow_clone_has_a_date(repository, tmp_path):
    git(tmp_path, "clone", "--depth", "1", f"file://{repository}", "shallow")
    assert committed_at(tmp_path / "shallow") == AT


def test_a_folder_of_another_user_has_a_date(repository):
    """Where git itself would refuse it: `safe.directory`."""
    if os.getuid() != 0:
        pytest.skip("needs root: only root can give a folder away")
    for path in (repository, *repository.rglob("*")):
        os.lchown(path, 12345, 12345)
    assert committed_at(repository) == AT


def test_folders_deeper_than_python_recurses_are_not_looked_into(repository):
    folder = repository / ".git" / "refs"
    for _ in range(1500):
        folder = folder / "a"
        folder.mkdir()
    try:
        assert committed_at(repository) == AT
    finally:
        subprocess.run(["rm", "-rf", repository], check=True)


def hostile_configuration(repository: Path, touched: Path) -> None:
    """Everything that git runs on its own, and a promise that what is missing lies on a server reached by a program."""
    program = f"touch {touched}"
    for key in ("core.fsmonitor", "core.sshCommand", "core.pager", "gpg.program", "core.editor", "alias.rev-parse"):
        git(repository, "config", key, program)
    git(repository, "config", "log.showSignature", "true")
    git(repository, "config", "remote.evil.url", f"ext::sh -c {program.replace(' ', '% ')}")
    git(repository, "config", "remote.evil.promisor", "true")
    git(repository, "config", "protocol.ext.allow", "always")
    git(repository, "config", "core.repositoryFormatVersion", "1")
    git(repository, "config", "extensions.partialClone", "evil")
    for hook in ("post-checkout", "reference-transaction", "post-index-change"):
        (repository / ".git" / "hooks" / hook).write_text(f"#!/bin/sh\n{program}\n")
        (repository / ".git" / "hooks" / hook).chmod(0o755)


def test_nothing_of_a_hostile_configuration_runs(repository, touched):
    hostile_configuration(repository, touched)
    assert committed_at(repository) == AT
    assert not touched.exists()


def test_a_missing_object_is_not_fetched(repository, touched):
    hostile_configuration(repository, touched)
    for path in (repository / ".git" / "objects").glob("??/*"):
        path.unlink()
    assert committed_at(repository) is None
    assert not touched.exists()


def replaced(path: Path, how: str, elsewhere: Path) -> None:
    path.rename(elsewhere)
    if how == "link":
        path.symlink_to(elsewhere)
    else:
        path.write_text(f"gitdir: {elsewhere}\n")


@pytest.mark.parametrize(
    ("part", "how"), [(".git", "file"), (".git", "link"), (".git/objects", "link"), (".git/HEAD", "link")]
)
def test_what_leads_elsewhere_is_not_followed(repository, tmp_path, part, how):
    replaced(repository / part, how, tmp_path / "elsewhere")
    assert committed_at(repository) is None


def test_a_link_among_the_references_costs_nothing(repository, tmp_path):
    (repository / ".git" / "refs" / "heads" / "other").symlink_to(tmp_path / "nothing")
    assert committed_at(repository) == AT


def test_objects_that_lie_elsewhere_are_not_read(repository, tmp_path):
    (repository / ".git" / "objects").rename(tmp_path / "elsewhere")
    (repository / ".git" / "objects" / "info").mkdir(parents=True)
    (repository / ".git" / "objects" / "info" / "alternates").write_text(f"{tmp_path / 'elsewhere'}\n")
    assert committed_at(repository) is None


@pytest.mark.parametrize("name", ["config", "HEAD", "packed-refs", "refs/heads/other"])
def test_a_pipe_in_the_place_of_a_file_is_not_waited_for(repository, name):
    path = repository / ".git" / name
    path.unlink(missing_ok=True)
    os.mkfifo(path)
    assert committed_at(repository) in (AT, None)


@pytest.mark.parametrize("head", ["ref: ../../../etc/passwd\n", "ref: refs/heads/none\n", "-h\n", "0" * 40, "", "\0"])
def test_a_head_that_leads_nowhere_has_no_date(repository, head):
    (repository / ".git" / "HEAD").write_text(head)
    assert committed_at(repository) is None


def test_a_replacement_of_the_commit_does_not_count(repository):
    git(repository, "branch", "first")
    git(repository, "commit", "--amend", "-m", "earlier", at="@7")
    git(repository, "branch", "earlier")
    git(repository, "reset", "--hard", "first")
    git(repository, "replace", "first", "earlier")
    assert committed_at(repository) == AT


def test_a_repository_beyond_the_limits_has_no_date(repository, monkeypatch):
    monkeypatch.setattr(commit_module, "MOST_BYTES", 100)
    assert committed_at(repository) is None


def test_without_a_repository_there_is_no_date(tmp_path):
    assert committed_at(tmp_path) is None


def test_nothing_of_a_repository_is_changed(repository):
    def state() -> dict[Path, tuple[int, int]]:
        return {path: (path.lstat().st_mtime_ns, path.lstat().st_size) for path in repository.rglob("*")}

    before = state()
    committed_at(repository)
    assert state() == before
