"""A server with the routes of Hugging Face's hub, and a second one, on another port, that has the large files as its storage does.

    with HubServer() as hub:
        hub.add("models", "acme/tiny", {"config.json": b"{}", "model.safetensors": b"..."})
        os.environ["HF_ENDPOINT"] = hub.url

Files of .safetensors and .parquet are large: the hub redirects to the storage. Misbehaviour is asked for by file:
hub.faults["model.safetensors"] = ["cut 1000", "status 503"] is what the next two requests for it meet.
"""

import hashlib
import json
import threading
import urllib.parse
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

LARGE = (".safetensors", ".parquet", ".arrow", ".gz", ".zst")


def git_sha1(content):
    return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()


class Repo:
    def __init__(self, kind, name, files, token, terms):
        self.kind, self.name, self.files, self.token, self.terms = kind, name, dict(files), token, terms
        self.commit = hashlib.sha1(name.encode() + b"".join(sorted(self.files.values()))).hexdigest()
        self.revisions = {"main"}

    def entry(self, path):
        content = self.files[path]
        entry = {"rfilename": path, "size": len(content), "blobId": git_sha1(content)}
        if path.endswith(LARGE):
            entry["lfs"] = {"sha256": hashlib.sha256(content).hexdigest(), "size": len(content), "pointerSize": 134}
        return entry


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *arguments):
        pass

    def answer(self, status, headers=(), body=b""):
        self.send_response(status)
        for name, value in headers:
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def refuse(self, status, code):
        self.answer(status, [("X-Error-Code", code)], json.dumps({"error": code}).encode())

    def give(self, name, content, headers):
        """The bytes of a file, from where Range says, with the next fault of that file."""
        hub = self.server.hub
        fault = hub.next_fault(name)
        if fault.startswith("status "):
            return self.answer(int(fault.split()[1]), [("Retry-After", "0")])
        begin = 0
        wanted = self.headers.get("Range", "")
        if wanted.startswith("bytes=") and fault != "no range":
            begin = int(wanted[6:].rstrip("-"))
            if begin >= len(content):
                return self.answer(416, [("Content-Range", f"bytes */{len(content)}")])
        if fault == "wrong":
            content = content[:-1] + bytes([content[-1] ^ 1])
        if fault == "longer":
            content += b"more"
        body = content[begin:]
        self.send_response(206 if begin else 200)
        if begin:
            self.send_header("Content-Range", f"bytes {begin}-{len(content) - 1}/{len(content)}")
        for key, value in headers:
            self.send_header(key, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command == "HEAD":
            return None
        if fault.startswith("cut "):
            self.wfile.write(body[: int(fault.split()[1])])
            self.wfile.flush()
            self.close_connection = True
            self.connection.close()
            return None
        if fault == "silent":
            self.wfile.write(body[:1])
            self.wfile.flush()
            hub.stopped.wait(30)
            return None
        self.wfile.write(body)
        return None

    def do_HEAD(self):
        self.do_GET()

    def do_GET(self):
        hub = self.server.hub
        hub.requests.append((self.command, self.server.role, self.path, dict(self.headers)))
        path = urllib.parse.urlsplit(self.path).path
        if self.server.role == "storage":
            name, content = hub.blobs.get(path.rsplit("/", 1)[1], (None, None))
            return self.answer(404) if content is None else self.give(name, content, [])
        parts = path.strip("/").split("/")
        if parts[0] == "api":
            lists = self.list_files if parts[4] == "revision" else self.list_tree
            return lists(parts[1], "/".join(parts[2:4]), urllib.parse.unquote("/".join(parts[5:])))
        kind = "models"
        if parts[0] == "datasets":
            kind, parts = "datasets", parts[1:]
        return self.resolve(kind, "/".join(parts[:2]), parts[3], urllib.parse.unquote("/".join(parts[4:])))

    def repo(self, kind, name):
        hub = self.server.hub
        if name in hub.moved:
            self.answer(307, [("Location", self.path.replace(name, hub.moved[name]))])
            return None
        repo = hub.repos.get((kind, name))
        token = self.headers.get("Authorization", "").removeprefix("Bearer ")
        if repo is None or (repo.token and token != repo.token):
            self.refuse(401 if not token else 404, "RepoNotFound")
            return None
        if repo.terms and not token:
            self.refuse(403, "GatedRepo")
            return None
        return repo

    def list_files(self, kind, name, revision):
        fault = self.server.hub.next_fault("list")
        if fault.startswith("status "):
            return self.answer(int(fault.split()[1]), [("Retry-After", "0")])
        repo = self.repo(kind, name)
        if repo is None:
            return None
        if revision not in repo.revisions | {repo.commit}:
            return self.refuse(404, "RevisionNotFound")
        siblings = [repo.entry(path) for path in repo.files] + self.server.hub.extra_siblings
        if self.server.hub.is_plain_mirror:
            siblings = [{"rfilename": each["rfilename"]} for each in siblings]
        return self.answer(200, [("Content-Type", "application/json")], json.dumps({"id": name, "sha": repo.commit, "siblings": siblings}).encode())

    def list_tree(self, kind, name, revision):
        """What the hub's own tools ask for."""
        repo = self.repo(kind, name)
        if repo is None:
            return None
        entries = [repo.entry(path) for path in repo.files]
        tree = [{"type": "file", "path": each["rfilename"], "size": each["size"], "oid": each["blobId"]} for each in entries]
        for each, entry in zip(tree, entries):
            if "lfs" in entry:
                each["lfs"] = {"oid": entry["lfs"]["sha256"], "size": entry["size"], "pointerSize": 134}
        return self.answer(200, [("Content-Type", "application/json")], json.dumps(tree).encode())

    def resolve(self, kind, name, revision, path):
        repo = self.repo(kind, name)
        if repo is None:
            return None
        if revision not in repo.revisions | {repo.commit}:
            return self.refuse(404, "RevisionNotFound")
        if path not in repo.files:
            return self.refuse(404, "EntryNotFound")
        content, entry = repo.files[path], repo.entry(path)
        headers = [("X-Repo-Commit", repo.commit)]
        if "lfs" not in entry:
            return self.give(path, content, [*headers, ("ETag", f'"{entry["blobId"]}"')])
        headers += [("X-Linked-Etag", f'"{entry["lfs"]["sha256"]}"'), ("X-Linked-Size", str(len(content)))]
        self.server.hub.blobs[entry["lfs"]["sha256"]] = (path, content)
        location = f"{self.server.hub.storage_url}/blobs/{entry['lfs']['sha256']}?signature=x"
        return self.answer(302, [*headers, ("Location", location)])


class HubServer:
    def __init__(self):
        self.repos, self.blobs, self.faults, self.moved = {}, {}, {}, {}
        self.requests, self.extra_siblings, self.is_plain_mirror = [], [], False
        self.stopped = threading.Event()
        self.servers = []
        for role in ("hub", "storage"):
            server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
            server.daemon_threads = True
            server.hub, server.role = self, role
            self.servers.append(server)
        self.url, self.storage_url = (f"http://127.0.0.1:{server.server_address[1]}" for server in self.servers)

    def add(self, kind, name, files, token=None, terms=False):
        repo = Repo(kind, name, files, token, terms)
        self.repos[kind, name] = repo
        return repo

    def next_fault(self, name):
        waiting = self.faults.get(name, [])
        return waiting.pop(0) if waiting else ""

    def asked(self, role=None):
        """Paths of requests, of one of the two servers."""
        return [path for _, of, path, _ in self.requests if role in (None, of)]

    def __enter__(self):
        for server in self.servers:
            threading.Thread(target=server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *exception):
        self.stopped.set()
        for server in self.servers:
            server.shutdown()
            server.server_close()
