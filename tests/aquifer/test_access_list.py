"""The list of those who are let in: what it may look like, and what happens when it changes underneath."""

from __future__ import annotations

import logging
import os
import tempfile
from pathlib import Path

import pytest

from penstock.aquifer import Right
from penstock.aquifer.security.access import ALL_RIGHTS, USUAL_RIGHTS, AccessList, rights_in
from penstock.aquifer.security.keys import CurveKeys, generate_keys, save_keys

ALICE, BOB = generate_keys(), generate_keys()


def add(folder: Path, name: str, keys: CurveKeys, rights: str | None = None) -> Path:
    """Put a key into a directory, as an administrator would."""
    file = folder / f"{name}.pub"
    line = "" if rights is None else f'rights = "{rights}"\n'
    file.write_text(f'# a key\npublic = "{keys.public}"\n{line}')
    return file


@pytest.fixture
def clients(tmp_path: Path) -> Path:
    folder = tmp_path / "clients"
    folder.mkdir()
    add(folder, "alice", ALICE)
    return folder


# ---------------------------------------------------------------- what it says
@pytest.mark.parametrize(
    ("text", "rights"),
    [
        ("read", Right.READ),
        ("read, write", Right.READ | Right.WRITE),
        (" Write  ADMIN,", Right.WRITE | Right.ADMIN),
        ("read,write,admin", ALL_RIGHTS),
        ("none", Right(0)),
    ],
)
def test_rights_are_named_with_commas_or_blanks_between(text: str, rights: Right) -> None:
    assert rights_in(text) == rights
    assert rights_in(str(rights)) == rights


@pytest.mark.parametrize("text", ["", "  ", "raed", "read, none", "read; write"])
def test_what_is_not_a_right_is_an_error_that_names_those_there_are(text: str) -> None:
    with pytest.raises(ValueError, match="there are read, write, admin"):
        rights_in(text)


def test_a_key_may_read_and_write_unless_its_file_says_otherwise(clients: Path) -> None:
    add(clients, "bob", BOB, "read")
    listed = AccessList.load(clients)
    assert listed.rights_of(ALICE.public) == USUAL_RIGHTS
    assert listed.rights_of(BOB.public) == Right.READ
    assert listed.rights_of(generate_keys().public) is None
    assert (listed.name_of(ALICE.public), listed.name_of(BOB.public)) == ("alice", "bob")


def test_in_a_file_of_keys_the_rights_stand_behind_the_key(tmp_path: Path) -> None:
    file = tmp_path / "clients"
    file.write_text(
        f"# ours\n{ALICE.public} alice rights=read,admin her laptop\n\n{BOB.public}\tbob, rights and all\n"
    )
    listed = AccessList.load(file)
    assert listed.rights_of(ALICE.public) == Right.READ | Right.ADMIN
    assert listed.name_of(ALICE.public) == "alice her laptop"
    assert listed.rights_of(BOB.public) == USUAL_RIGHTS


def test_a_saved_pair_can_be_put_on_the_list_as_it_is(tmp_path: Path) -> None:
    save_keys(ALICE, tmp_path / "alice")
    assert AccessList.load(tmp_path).keys == {ALICE.public}


@pytest.mark.parametrize("where", ["directory", "file"])
def test_a_wrong_right_says_where_it_stands(clients: Path, tmp_path: Path, where: str) -> None:
    add(clients, "bob", BOB, "root")
    (tmp_path / "list").write_text(f"{ALICE.public}\n{BOB.public} rights=root\n")
    place, told = (
        (clients, r"bob\.pub: 'root' is not a right")
        if where == "directory"
        else (
            tmp_path / "list",
            "list, line 2: 'root' is not a right",
        )
    )
    with pytest.raises(ValueError, match=told):
        AccessList.load(place)


def test_a_key_that_is_there_twice_has_one_set_of_rights(clients: Path) -> None:
    add(clients, "alice-again", ALICE)
    assert AccessList.load(clients).keys == {ALICE.public}
    add(clients, "alice-again", ALICE, "admin")
    with pytest.raises(ValueError, match="on the list twice, with different rights"):
        AccessList.load(clients)


def test_a_thousand_keys_are_read(clients: Path) -> None:
    keys = [generate_keys() for _ in range(1000)]
    for number, one in enumerate(keys):
        add(clients, f"client-{number}", one, "read" if number % 2 else None)
    listed = AccessList.load(clients)
    assert listed.rights_of(keys[999].public) == Right.READ
    (clients / "client-999.pub").unlink()
    settle(listed)
    assert listed.rights_of(keys[999].public) is None
    assert listed.rights_of(keys[998].public) == USUAL_RIGHTS


# ---------------------------------------------------------------- while it is in use
def settle(listed: AccessList) -> None:
    """Look as often as it takes for a change to be taken over, if it is."""
    listed.refresh()
    listed.refresh()


def test_a_change_is_taken_over_when_the_list_is_quiet_again(clients: Path) -> None:
    listed = AccessList.load(clients)
    settle(listed)
    assert listed.version == 0

    add(clients, "bob", BOB, "read")
    listed.refresh()
    assert listed.rights_of(BOB.public) is None, "somebody may still be writing it"
    listed.refresh()
    assert listed.rights_of(BOB.public) == Right.READ

    add(clients, "bob", BOB, "read, write")
    (clients / "alice.pub").unlink()
    settle(listed)
    assert listed.rights_of(BOB.public) == USUAL_RIGHTS
    assert listed.rights_of(ALICE.public) is None
    assert listed.version == 2


def test_a_key_whose_file_gets_another_name_stays_what_it_is(clients: Path) -> None:
    listed = AccessList.load(clients)
    (clients / "alice.pub").rename(clients / "alice-of-accounting.pub")
    settle(listed)
    assert listed.rights_of(ALICE.public) == USUAL_RIGHTS
    assert listed.name_of(ALICE.public) == "alice-of-accounting"


def damage(kind: str, clients: Path, file: Path) -> None:
    if kind == "removed":
        file.unlink()
    elif kind == "emptied":
        file.write_text("")
    elif kind == "half-written":
        file.write_text(f"{ALICE.public}\n{BOB.public[:17]}")
    elif kind == "a directory in its place":
        file.unlink()
        file.mkdir()
        add(file, "broken", BOB).write_text('public = "half of')
    else:
        clients.rename(clients.with_name("elsewhere"))


@pytest.mark.parametrize("kind", ["removed", "emptied", "half-written", "a directory in its place"])
def test_a_list_that_cannot_be_read_leaves_the_last_good_one_in_force_and_is_told_once(
    tmp_path: Path, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "list"
    file.write_text(f"{ALICE.public}\n{BOB.public} rights=read\n")
    listed = AccessList.load(file)

    damage(kind, tmp_path, file)
    for _ in range(3):
        settle(listed)
    assert not listed.reload()

    assert listed.keys == {ALICE.public, BOB.public}
    assert listed.version == 0
    told = [record.getMessage() for record in caplog.records if record.levelno == logging.ERROR]
    assert len(told) == 1
    assert "the last one stays in force" in told[0]


def test_a_list_that_can_be_read_again_is_taken_over(tmp_path: Path) -> None:
    file = tmp_path / "list"
    file.write_text(f"{ALICE.public}\n")
    listed = AccessList.load(file)
    file.unlink()
    settle(listed)
    assert listed.keys == {ALICE.public}
    file.write_text(f"{BOB.public}\n")
    settle(listed)
    assert listed.keys == {BOB.public}


def test_a_directory_that_was_removed_is_not_an_empty_one(clients: Path) -> None:
    listed = AccessList.load(clients)
    damage("moved", clients, clients)
    settle(listed)
    assert listed.keys == {ALICE.public}


@pytest.mark.skipif(os.name != "posix", reason="rights of files as POSIX has them")
def test_a_directory_that_may_not_be_read_is_not_an_empty_one(caplog: pytest.LogCaptureFixture) -> None:
    with tempfile.TemporaryDirectory() as folder:  # Not tmp_path: only its owner gets there.
        os.chmod(folder, 0o755)
        clients = Path(folder, "clients")
        clients.mkdir()
        add(clients, "alice", ALICE)
        listed = AccessList.load(clients)
        clients.chmod(0)
        is_root = os.geteuid() == 0
        try:
            if is_root:
                os.seteuid(65534)  # Root may read everything.
            assert not listed.reload()
        finally:
            if is_root:
                os.seteuid(0)
            clients.chmod(0o755)
    assert listed.keys == {ALICE.public}
    assert "the last one stays in force" in caplog.text


def test_an_empty_directory_lets_nobody_in(clients: Path, caplog: pytest.LogCaptureFixture) -> None:
    listed = AccessList.load(clients)
    (clients / "alice.pub").unlink()
    settle(listed)
    assert listed.keys == frozenset()
    assert "no client can connect" in caplog.text


def test_one_file_in_the_directory_that_is_half_written_takes_nobody_elses_rights(clients: Path) -> None:
    listed = AccessList.load(clients)
    add(clients, "bob", BOB).write_text('public = "')
    settle(listed)
    assert listed.keys == {ALICE.public}
    add(clients, "bob", BOB)
    settle(listed)
    assert listed.keys == {ALICE.public, BOB.public}


def test_a_change_that_leaves_size_and_time_alone_is_seen(tmp_path: Path) -> None:
    file = tmp_path / "list"
    file.write_text(f"{ALICE.public}\n")
    before = file.stat()
    listed = AccessList.load(file)
    file.write_text(f"{BOB.public}\n")
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
    settle(listed)
    assert listed.keys == {BOB.public}


def test_what_was_said_by_hand_outlasts_the_list(clients: Path) -> None:
    listed = AccessList.load(clients)
    listed.revoke(ALICE.public)
    listed.allow(BOB.public, Right.ADMIN)
    assert listed.reload()
    assert listed.keys == {BOB.public}
    assert listed.rights_of(BOB.public) == Right.ADMIN
    assert listed.rights_of(ALICE.public) is None
    listed.allow(ALICE.public)
    assert listed.rights_of(ALICE.public) == USUAL_RIGHTS


def test_without_a_list_everybody_may_read_and_write() -> None:
    listed = AccessList.of(None)
    assert listed.keys is None
    assert listed.rights_of(BOB.public) == USUAL_RIGHTS
    listed.revoke(BOB.public)
    assert listed.rights_of(BOB.public) is None
