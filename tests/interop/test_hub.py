"""A model by its name on the hub: what is asked of a small server on loopback, what is kept, what is refused."""

import hashlib
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
import tiny_folders
import torch

pytest.importorskip("huggingface_hub")
pytest.importorskip("transformers")

import regard
from regard.errors import FileError

COMMIT = "0123456789abcdef0123456789abcdef01234567"


class Hub:
    """Folders by the names of models, and every file that was asked for."""

    def __init__(self) -> None:
        self.folders: dict[str, Path] = {}
        self.gated: set[str] = set()
        self.asked: list[str] = []

    def files(self, model: str) -> list[str]:
        folder = self.folders[model]
        return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())

    def answer(self, path: str) -> tuple[int, dict[str, str], bytes]:
        parts = path.partition("?")[0].strip("/").split("/")
        about = parts[:2] == ["api", "models"]
        model = "/".join(parts[2:4] if about else parts[:2])
        if model not in self.folders:
            return 401, {"X-Error-Code": "RepoNotFound", "X-Error-Message": "Repository not found"}, b""
        if about:
            siblings = [{"rfilename": name} for name in self.files(model)]
            return 200, {}, json.dumps({"id": model, "sha": COMMIT, "siblings": siblings}).encode()
        name = "/".join(parts[4:])
        self.asked.append(name)
        if model in self.gated:
            return 403, {"X-Error-Code": "GatedRepo", "X-Error-Message": "Access is restricted"}, b""
        if not (self.folders[model] / name).is_file():
            return 404, {"X-Error-Code": "EntryNotFound", "X-Error-Message": "Entry not found"}, b""
        content = (self.folders[model] / name).read_bytes()
        tag = hashlib.sha256(content).hexdigest()
        return 200, {"ETag": f'"{tag}"', "X-Repo-Commit": COMMIT}, content


def serve(hub: Hub) -> ThreadingHTTPServer:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            code, headers, content = hub.answer(self.path)
            self.send_response(code)
            for name, value in headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            if self.command == "GET":
                self.wfile.write(content)

        do_HEAD = do_GET  # noqa: N815

        def log_message(self, *arguments: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    room = tmp_path_factory.mktemp("models")
    whole = tiny_folders.write("gpt", room / "gpt")
    (whole / "pytorch_model.bin").write_bytes(b"a pickle")
    (whole / "modeling.py").write_text("raise SystemExit")
    (whole / "onnx").mkdir()
    (whole / "onnx" / "model.safetensors").write_bytes(b"another")
    return {"tiny/gpt": whole, "tiny/shards": tiny_folders.write("llama", room / "llama", max_shard_size="20KB")}


@pytest.fixture
def hub(folders, tmp_path, monkeypatch):
    one = Hub()
    one.folders |= folders
    server = serve(one)
    monkeypatch.setenv("HF_ENDPOINT", f"http://127.0.0.1:{server.server_port}")
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    yield one
    server.shutdown()
    server.server_close()


@pytest.mark.parametrize("name", ["tiny/gpt", "tiny/shards"])
def test_a_model_of_the_hub_is_the_folder_it_was_made_of(name, hub, folders):
    found, wanted = regard.load(name, "cpu"), regard.load(folders[name], "cpu")
    for key, tensor in wanted.module.state_dict().items():
        assert torch.equal(found.module.state_dict()[key], tensor), key
    assert found.tokenizer.encode("the river is") == wanted.tokenizer.encode("the river is")
    assert hub.asked[0] == "config.json"


def test_no_pickle_and_no_program_is_asked_for(hub):
    regard.load("tiny/gpt", "cpu")
    asked = {*hub.asked}
    assert {"config.json", "model.safetensors", "tokenizer.json"} <= asked
    assert not {name for name in asked if name.endswith((".bin", ".py")) or "/" in name}


def test_what_was_fetched_is_used_where_the_hub_does_not_answer(hub, monkeypatch):
    first = regard.load("tiny/gpt", "cpu").run("the river")
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")  # where nothing listens
    assert regard.load("tiny/gpt", "cpu").run("the river") == first
    with pytest.raises(FileError, match="there is no folder tiny/shards here, and the hub cannot be asked for it"):
        regard.load("tiny/shards", "cpu")


def test_commands_take_a_name(hub, call):
    ran = call("run", "tiny/gpt", "the river", "--max-new-tokens", 2, "--device", "cpu")
    assert (ran.code, ran.out.count("\n")) == (0, 1)
    hub.asked.clear()
    sized = call("size", "tiny/shards")
    assert sized.code == 0
    assert "decoder, 3 layers, width 24" in sized.out
    assert hub.asked.count("model.safetensors.index.json") == 0  # a size needs the config alone


def test_a_folder_of_that_name_is_taken_first(hub, folders):
    Path("tiny").mkdir()
    Path("tiny/gpt").symlink_to(folders["tiny/gpt"])
    regard.load("tiny/gpt", "cpu")
    assert hub.asked == []


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("tiny/none", "there is no folder tiny/none here and no model tiny/none on the hub"),
        ("tiny/gp t", "'tiny/gp t' is no folder, and no model of the hub"),
        ("tiny/-x", "'tiny/-x' is no folder, and no model of the hub"),
        ("tiny/a--b", "'tiny/a--b' is no folder, and no model of the hub"),
        ("runs/none", "runs/none is not a folder"),
        ("tiny/a/b", "tiny/a/b is not a folder"),
        ("../none", "../none is not a folder"),
    ],
)
def test_what_is_no_model_is_refused_by_a_sentence(name, said, hub, call):
    ran = call("run", name, "x")
    assert (ran.code, ran.out, ran.err.count("\n")) == (1, "", 1)
    assert said in ran.err
    assert hub.asked == []


def test_a_family_that_is_not_known_costs_its_config_alone(hub, tmp_path):
    (tmp_path / "mamba").mkdir()
    (tmp_path / "mamba" / "config.json").write_text(json.dumps({"model_type": "mamba"}))
    (tmp_path / "mamba" / "model.safetensors").write_bytes(bytes(10))
    hub.folders["tiny/mamba"] = tmp_path / "mamba"
    with pytest.raises(FileError, match="model_type = 'mamba', a family that is not known here"):
        regard.load("tiny/mamba", "cpu")
    assert {*hub.asked} == {"config.json"}


def test_weights_that_are_a_pickle_and_models_behind_a_gate_are_refused(hub, tmp_path):
    (tmp_path / "old").mkdir()
    (tmp_path / "old" / "config.json").write_text(json.dumps({"model_type": "gpt2"}))
    (tmp_path / "old" / "pytorch_model.bin").write_bytes(b"a pickle")
    hub.folders["tiny/old"] = tmp_path / "old"
    with pytest.raises(FileError, match=r"tiny/old has its weights as pytorch_model.bin, a pickle, on the hub"):
        regard.load("tiny/old", "cpu")
    (tmp_path / "old" / "config.json").unlink()
    hub.folders["tiny/bare"] = tmp_path / "old"
    with pytest.raises(FileError, match=r"tiny/bare has no config.json on the hub"):
        regard.load("tiny/bare", "cpu")
    hub.gated.add("tiny/gpt")
    with pytest.raises(FileError, match="tiny/gpt is on the hub for those who agreed to its terms"):
        regard.load("tiny/gpt", "cpu")


def test_the_library_is_imported_by_one_file_and_there_when_a_model_is_fetched():
    sources = Path(regard.__file__).parent.rglob("*.py")
    found = [
        (path.name, line) for path in sources for line in path.read_text().splitlines() if "huggingface_hub" in line
    ]
    imports = {(name, line.startswith(" ")) for name, line in found if "import" in line and not line.startswith('"')}
    assert imports == {("hub.py", True)}
