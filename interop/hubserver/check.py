"""The test hub and our cache reader against Python's huggingface_hub.

    python check.py path/to/hubserver [folder of a model]

Python's client must find in the test hub what it finds in the public one: listings, metadata, downloads, errors. Then quern's client
reads, offline, the cache that Python's client has written. No network but loopback.
"""

import contextlib
import hashlib
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

MODEL = Path(__file__).resolve().parents[2] / "testdata" / "models" / "stories260k"


@contextlib.contextmanager
def hub(server, root, *flags):
    """A running hub; its address. At the end its own report must be clean."""
    p = subprocess.Popen([server, "serve", "-root", root, *flags], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        yield json.loads(p.stdout.readline())["endpoint"]
    finally:
        p.stdin.close()
        report = json.loads(p.stdout.readline())
        p.wait()
    assert report["violations"] == [], report
    assert report["requests"] > 0, report


def sums(folder):
    """Path -> SHA-256 of every file below a folder, links followed."""
    out = {}
    for d, _, names in os.walk(folder):
        for n in names:
            p = Path(d) / n
            out[p.relative_to(folder).as_posix()] = hashlib.sha256(p.read_bytes()).hexdigest()
    return out


def read(server, repo, *flags, **env):
    """What quern's client reads."""
    run = subprocess.run([server, "read", *flags, repo], env=dict(os.environ, **env), capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    return json.loads(run.stdout)


def raises(kind, f, *args, **kw):
    try:
        f(*args, **kw)
    except kind as e:
        return e
    raise AssertionError(f"{kind.__name__} was not raised")


def client(endpoint, server, want, root):
    """Everything that is checked in one hub. It runs in a process of its own, since the client reads its environment once."""
    import huggingface_hub as h
    from huggingface_hub.utils import EntryNotFoundError, GatedRepoError, HfHubHTTPError, RevisionNotFoundError

    api = h.HfApi()
    folder = h.snapshot_download("org/toy")
    assert sums(folder) == want, sums(folder)
    commit = Path(folder).name

    files = {f.path: f for f in api.list_repo_tree("org/toy", recursive=True) if isinstance(f, h.hf_api.RepoFile)}
    assert set(files) == set(want)
    assert {f.path for f in api.list_repo_tree("org/toy", "sub dir")} == {"sub dir/a#b.txt"}
    info = api.model_info("org/toy", files_metadata=True)
    assert info.sha == commit
    for s in info.siblings:
        f = files[s.rfilename]
        size = (Path(root) / "org/toy" / s.rfilename).stat().st_size
        assert s.size == f.size == size and s.blob_id == f.blob_id
        assert (s.lfs is None) == (f.lfs is None) and (f.lfs is None or s.lfs.sha256 == f.lfs.sha256 == want[s.rfilename])
    assert [f.path for f in api.get_paths_info("org/toy", ["config.json", "none"])] == ["config.json"]
    assert api.file_exists("org/toy", "config.json") and not api.file_exists("org/toy", "none")
    assert [b.target_commit for b in api.list_repo_refs("org/toy").branches] == [commit]
    meta = h.get_hf_file_metadata(h.hf_hub_url("org/toy", "model.safetensors"))
    assert meta.etag == want["model.safetensors"] and meta.commit_hash == commit and meta.size == files["model.safetensors"].size
    meta = h.get_hf_file_metadata(h.hf_hub_url("org/toy", "config.json"))
    assert meta.etag == files["config.json"].blob_id and meta.size == files["config.json"].size
    assert len(api.get_safetensors_metadata("org/toy").files_metadata["model.safetensors"].tensors) > 10

    def get(repo, name, **kw):
        with tempfile.TemporaryDirectory() as d:
            return Path(h.hf_hub_download(repo, name, cache_dir=d, **kw)).read_bytes()

    raises(EntryNotFoundError, get, "org/toy", "none")
    raises(RevisionNotFoundError, get, "org/toy", "config.json", revision="none")
    assert raises(GatedRepoError, get, "org/gated", "config.json").response.status_code == 401
    assert raises(GatedRepoError, get, "org/gated", "config.json", token="poor").response.status_code == 403
    assert get("org/gated", "config.json", token="good")
    assert raises(HfHubHTTPError, get, "org/toy", "config.json", token="unknown").response.status_code == 401

    # quern reads what Python has written, without a request and without writing.
    before = sums(os.environ["HF_HOME"])
    got = read(server, "org/toy", HF_HUB_OFFLINE="1", HF_ENDPOINT="http://127.0.0.1:9")
    assert got["files"] == want and got["commit"] == commit and got["stats"]["Requests"] == 0, got
    assert sums(os.environ["HF_HOME"]) == before
    # And by itself, with and without a spool.
    with tempfile.TemporaryDirectory() as d:
        for flags in ([], ["-spool", d], ["-spool", d]):
            got = read(server, "org/toy", *flags, HF_HOME=d)
            assert got["files"] == want and got["commit"] == commit, got
        assert got["stats"]["Fetched"] == 0, got["stats"]


def main():
    if sys.argv[1] == "client":
        client(*sys.argv[2:4], json.loads(sys.argv[4]), sys.argv[5])
        return
    server, model = sys.argv[1], Path(sys.argv[2]) if len(sys.argv) > 2 else MODEL
    with tempfile.TemporaryDirectory() as root:
        for name in ("toy", "gated"):
            into = Path(root) / "org" / name
            into.mkdir(parents=True)
            for f in model.iterdir():
                (into / f.name).write_bytes(f.read_bytes())
        (Path(root) / "org/toy/sub dir").mkdir()
        (Path(root) / "org/toy/sub dir/a#b.txt").write_text("a path that must be escaped\n")
        want = sums(Path(root) / "org/toy")
        for mode in ([], ["-direct-git", "-no-xet"], ["-signed-once", "-page-size", "1000"]):
            flags = ["-gated", "org/gated", "-token", "good=org/gated", "-token", "poor", *mode]
            with hub(server, root, *flags) as endpoint, tempfile.TemporaryDirectory() as home:
                env = dict(os.environ, HF_ENDPOINT=endpoint, HF_HOME=home, HF_HUB_DISABLE_XET="1", HF_HUB_DISABLE_PROGRESS_BARS="1", HF_HUB_DISABLE_TELEMETRY="1")
                for k in ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE", "HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE"):
                    env.pop(k, None)
                subprocess.run([sys.executable, __file__, "client", endpoint, server, json.dumps(want), root], env=env, check=True)
            print("test hub", " ".join(mode) or "as the public one", "ok")


if __name__ == "__main__":
    main()
