"""A model hub of one's own: as much of the hub's HTTP interface as its client talks to.

Made after the requests that huggingface_hub 0.36, 1.31 and 2.4 send, and what they want of the
answers. Large
files lie behind a redirect to another host name, as on the real one, so that it can be seen whether
a token goes along.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from typing import Any
from urllib.parse import unquote, urlsplit

from quiet_server import QuietServer

LARGE = 512  # bytes from which a file of weights is large
_LICENSES = ("apache-2.0", "mit", "cc-by-4.0")

Files = dict[str, bytes]


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def git_hash(content: bytes) -> str:
    return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()


def is_large(name: str, content: bytes) -> bool:
    return name.endswith((".safetensors", ".bin")) and len(content) >= LARGE


@dataclass
class Repository:
    """Commits with their files, and branches and tags that name commits."""

    private: bool = False
    gated: bool = False
    commits: dict[str, Files] = field(default_factory=dict)
    refs: dict[str, str] = field(default_factory=dict)
    messages: list[str] = field(default_factory=list)

    def commit(self, files: Files, branch: str = "main", message: str = "") -> str:
        said = json.dumps([len(self.commits), branch, sorted(files)])
        commit = hashlib.sha1(said.encode()).hexdigest()
        self.commits[commit] = dict(files)
        self.refs[branch] = commit
        self.messages.append(message)
        return commit

    def at(self, revision: str) -> str | None:
        commit = self.refs.get(revision, revision)
        return commit if commit in self.commits else None


@dataclass(frozen=True)
class Refusal:
    """What to answer to the next request whose path matches, in place of the truth."""

    path: str
    status: int
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b"{}"


class FakeHub:
    """The hub's state; `asked` is every request: method, path, token."""

    def __init__(self) -> None:
        self.repositories: dict[str, Repository] = {}
        self.tokens: dict[str, str] = {"reader": "read", "writer": "write"}
        self.asked: list[tuple[str, str, str | None]] = []
        self.refusals: deque[Refusal] = deque()
        self.cuts: deque[int] = deque()
        """Bytes after which the next answers with large files break off."""
        self.garbled = False
        self.uploads: Files = {}
        self.ranges: list[str] = []
        self.address = ""

    def add(self, name: str, files: Files, *, private: bool = False, gated: bool = False) -> str:
        """A repository with one commit, which is returned."""
        return self.repositories.setdefault(name, Repository(private, gated)).commit(files)

    @property
    def other_host(self) -> str:
        return self.address.replace("127.0.0.1", "localhost")


class Host:
    """A port of this machine where one hub after the other answers."""

    def __init__(self, server: QuietServer) -> None:
        self._server = server

    def serve(self, hub: FakeHub) -> None:
        """Let this hub answer from now on, to clients that are connected already too."""
        hub.address = f"http://127.0.0.1:{self._server.server_address[1]}"
        _Answers.state = hub


@contextmanager
def serving() -> Iterator[Host]:
    """A port where hubs answer."""
    server = QuietServer(("127.0.0.1", 0), _Answers)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield Host(server)
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class _Answers(BaseHTTPRequestHandler):
    state: FakeHub
    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: object) -> None:
        del format, args

    def do_HEAD(self) -> None:
        self._any()

    def do_GET(self) -> None:
        self._any()

    def do_POST(self) -> None:
        self._any()

    def do_PUT(self) -> None:
        self._any()

    def _any(self) -> None:
        length = self.headers.get("Content-Length")
        if length is None and self.headers.get("Transfer-Encoding") == "chunked":
            self.close_connection = True
            self._send(411)
            return
        self.body = self.rfile.read(int(length or 0))
        token = (self.headers.get("Authorization") or "").removeprefix("Bearer ") or None
        path = unquote(urlsplit(self.path).path)
        self.state.asked.append((self.command, path, token))
        self.token = token
        if self.state.refusals and re.search(self.state.refusals[0].path, path):
            refusal = self.state.refusals.popleft()
            self._send(refusal.status, refusal.body, **refusal.headers)
            return
        if token is not None and token not in self.state.tokens:
            self._send(401, **{"X-Error-Message": "Invalid credentials in Authorization header"})
            return
        for pattern, answer in _ROUTES:
            found = re.fullmatch(pattern, f"{self.command} {path}")
            if found is not None:
                answer(self, **found.groupdict())
                return
        self._send(404)

    def _send(self, status: int, body: bytes | object = b"", **headers: str) -> None:
        if not isinstance(body, bytes):
            body = json.dumps(body).encode()
            headers["Content-Type"] = "application/json"
        self.send_response(status)
        for name, value in ({"Content-Length": str(len(body))} | headers).items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def _repository(self, name: str, *, write: bool = False) -> Repository | None:
        found = self.state.repositories.get(name)
        right = self.state.tokens.get(self.token or "")
        if found is None or (found.private and right is None):
            # the hub does not tell whether it is there
            status = 404 if right else 401
            self._send(status, **({"X-Error-Code": "RepoNotFound"} if right else {}))
            return None
        if found.gated and right != "write":
            self._send(403 if right else 401, **{"X-Error-Code": "GatedRepo"})
            return None
        if write and right != "write":
            self._send(403 if right else 401, {"error": "no right to write"})
            return None
        return found

    def _commit(self, name: str, revision: str) -> tuple[Repository, str] | None:
        repository = self._repository(name)
        if repository is None:
            return None
        commit = repository.at(revision)
        if commit is None:
            self._send(404, **{"X-Error-Code": "RevisionNotFound"})
            return None
        return repository, commit

    def info(self, name: str, revision: str | None = None) -> None:
        found = self._commit(name, revision or "main")
        if found is None:
            return
        repository, commit = found
        siblings = [told(path, file) for path, file in repository.commits[commit].items()]
        self._send(
            200,
            {"id": name, "sha": commit, "private": repository.private, "siblings": siblings},
        )

    def tree(self, name: str, revision: str) -> None:
        found = self._commit(name, revision)
        if found is not None:
            files = found[0].commits[found[1]].items()
            rows = [
                {"type": "file", "path": path, "size": len(file), "oid": git_hash(file)}
                for path, file in files
            ]
            self._send(200, rows)

    def resolve(self, name: str, revision: str, path: str) -> None:
        found = self._commit(name, revision)
        if found is None:
            return
        file = found[0].commits[found[1]].get(path)
        headers = {"X-Repo-Commit": found[1]}
        if file is None:
            self._send(404, **headers, **{"X-Error-Code": "EntryNotFound"})
        elif is_large(path, file):
            headers["X-Linked-ETag"] = f'"{sha256(file)}"'
            headers["X-Linked-Size"] = str(len(file))
            headers["Location"] = f"{self.state.other_host}/large/{name}/{found[1]}/{path}"
            self._send(302, **headers)
        else:
            headers["ETag"] = f'"{git_hash(file)}"'
            self._send(200, file, **headers)

    def large(self, name: str, commit: str, path: str) -> None:
        file = self.state.repositories[name].commits[commit][path]
        if self.state.garbled:
            file = bytes([file[0] ^ 1]) + file[1:]
        wanted, begin, status, headers = self.headers.get("Range"), 0, 200, {}
        if wanted is not None:
            self.state.ranges.append(wanted)
            begin, status = int(wanted.removeprefix("bytes=").split("-")[0]), 206
            headers["Content-Range"] = f"bytes {begin}-{len(file) - 1}/{len(file)}"
        part = file[begin:]
        if self.state.cuts and self.command == "GET":
            headers["Content-Length"] = str(len(part))
            self.close_connection = True
            self._send(status, part[: self.state.cuts.popleft()], **headers)
            return
        self._send(status, part, **headers)

    def create(self) -> None:
        if self.state.tokens.get(self.token or "") != "write":
            self._send(403 if self.token else 401, {"error": "no right to write"})
            return
        told = json.loads(self.body)
        name = f"{told['organization']}/{told['name']}"
        url = {"url": f"{self.state.address}/{name}", "name": name, "id": name}
        if name in self.state.repositories:
            self._send(409, url | {"error": "You already created this model repo"})
            return
        # since 1.0 the client says it by a word
        private = told.get("private") or told.get("visibility") == "private"
        self.state.repositories[name] = Repository(private=bool(private))
        self.state.repositories[name].commit({".gitattributes": b"*.safetensors\n"})
        self._send(200, url)

    def branch(self, name: str, branch: str) -> None:
        repository = self._repository(name, write=True)
        if repository is None:
            return
        if branch in repository.refs:
            self._send(409, {"error": "Reference already exists"})
            return
        repository.refs[branch] = repository.refs["main"]
        self._send(200, {})

    def validate(self) -> None:
        import yaml

        content = json.loads(self.body)["content"]
        head = yaml.safe_load(content.split("---\n")[1])
        license = head.get("license")
        if license is not None and license not in _LICENSES:
            told = f'"license" must be one of {list(_LICENSES)}'
            self._send(400, {"errors": [{"message": told}], "warnings": []})
        else:
            warnings = [] if license else [{"message": "empty or missing license"}]
            self._send(200, {"errors": [], "warnings": warnings})

    def preupload(self, name: str, revision: str) -> None:
        repository = self._repository(name, write=True)
        if repository is None:
            return
        answer = []
        commit = repository.at(revision)
        assert commit is not None
        for file in json.loads(self.body)["files"]:
            sample = base64.b64decode(file["sample"])
            large = is_large(file["path"], sample) or file["size"] > 10 * 2**20
            there = repository.commits[commit].get(file["path"])
            oid = None
            if there is not None:
                oid = sha256(there) if large else git_hash(there)
            mode = "lfs" if large else "regular"
            answer.append(
                {"path": file["path"], "uploadMode": mode, "shouldIgnore": False, "oid": oid}
            )
        self._send(200, {"files": answer})

    def batch(self, name: str) -> None:
        if self._repository(name, write=True) is None:
            return
        rows = []
        for item in json.loads(self.body)["objects"]:
            actions = {
                "upload": {"href": f"{self.state.other_host}/upload/{item['oid']}"},
                "verify": {"href": f"{self.state.address}/verify"},
            }
            there = item["oid"] in self.state.uploads
            rows.append(item | ({} if there else {"actions": actions}))
        self._send(200, {"objects": rows, "transfer": "basic"})

    def upload(self, oid: str) -> None:
        if sha256(self.body) != oid:
            self._send(400)
            return
        self.state.uploads[oid] = self.body
        self._send(200)

    def verify(self) -> None:
        told = json.loads(self.body)
        there = self.state.uploads.get(told["oid"])
        self._send(200 if there is not None and len(there) == told["size"] else 404, {})

    def make_commit(self, name: str, revision: str) -> None:
        repository = self._repository(name, write=True)
        if repository is None:
            return
        before = repository.at(revision)
        assert before is not None
        files, message = dict(repository.commits[before]), ""
        for line in self.body.splitlines():
            row = json.loads(line)
            value = row["value"]
            if row["key"] == "header":
                message = value["summary"]
            elif row["key"] == "file":
                files[value["path"]] = base64.b64decode(value["content"])
            elif row["key"] == "lfsFile":
                files[value["path"]] = self.state.uploads[value["oid"]]
            else:
                assert row["key"] == "deletedFile"
                del files[value["path"]]
        commit = repository.commit(files, revision, message)
        url = f"{self.state.address}/{name}/commit/{commit}"
        self._send(200, {"success": True, "commitOid": commit, "commitUrl": url})


def told(path: str, file: bytes) -> dict[str, Any]:
    row: dict[str, Any] = {"rfilename": path, "size": len(file), "blobId": git_hash(file)}
    if is_large(path, file):
        row["lfs"] = {"sha256": sha256(file), "size": len(file), "pointerSize": 134}
    return row


_NAME = r"(?P<name>[\w.-]+/[\w.-]+)"
_ROUTES = (
    (rf"GET /api/models/{_NAME}(/revision/(?P<revision>.+))?", _Answers.info),
    (rf"GET /api/models/{_NAME}/tree/(?P<revision>.+)", _Answers.tree),
    (rf"(HEAD|GET) /{_NAME}/resolve/(?P<revision>[\w.-]+)/(?P<path>.+)", _Answers.resolve),
    (rf"(HEAD|GET) /large/{_NAME}/(?P<commit>\w+)/(?P<path>.+)", _Answers.large),
    (r"POST /api/repos/create", _Answers.create),
    (rf"POST /api/models/{_NAME}/branch/(?P<branch>.+)", _Answers.branch),
    (r"POST /api/validate-yaml", _Answers.validate),
    (rf"POST /api/models/{_NAME}/preupload/(?P<revision>.+)", _Answers.preupload),
    (rf"POST /{_NAME}\.git/info/lfs/objects/batch", _Answers.batch),
    (r"PUT /upload/(?P<oid>\w+)", _Answers.upload),
    (r"POST /verify", _Answers.verify),
    (rf"POST /api/models/{_NAME}/commit/(?P<revision>.+)", _Answers.make_commit),
)
