# quern: everything here needs Go alone, except interop (the real peers, see
# interop/README.md) and ci (qemu-user).
GO ?= go
VERSION ?= dev
LDFLAGS = -s -w -X main.version=$(VERSION)

.PHONY: build demo test race vet fma fuzz digests arm64 cross bench stream interop generate generated clean

build: ## the binary, ./quern
	CGO_ENABLED=0 $(GO) build -ldflags '$(LDFLAGS)' -o quern ./cmd/quern

demo: build ## the main job: a real model to GGUF and KMCU, into ./out
	./quern build testdata/demo.yaml -o out

test: ## all tests; Go alone, no network
	$(GO) test -timeout 30m ./...

race: ## the packages that share memory between goroutines
	$(GO) test -race -short -timeout 30m ./internal/... ./artifacts/... ./hub/... ./pipeline/... ./stages/source ./tensor/view ./verify/...

vet:
	test -z "$$(gofmt -l $$(git ls-files '*.go'))"
	$(GO) vet ./...
	GOARCH=386 $(GO) vet ./...
	GOARCH=arm64 $(GO) vet ./tensor/...

fma: ## float products that some machines would fuse
	$(GO) run ./internal/fmacheck/cmd/fmacheck -test=false ./tensor/... ./tokenizer/... ./model/... ./formats/... ./runtime/... ./device/... ./stages/... ./verify/...

FUZZTIME ?= 10s
fuzz: ## every fuzz target for a short while
	GO=$(GO) FUZZTIME=$(FUZZTIME) sh internal/scripts/fuzz.sh

digests: ## equal bytes: amd64, GOAMD64=v3, noasm, arm64 under qemu-user; 1, 2, 7 jobs
	GO=$(GO) sh internal/scripts/digests.sh

arm64: ## the vector code of arm64 beside the scalar code, and products of all types, under qemu-user
	GOARCH=arm64 $(GO) test -exec qemu-aarch64 -run 'Lanes|Kernels' ./tensor/quant
	GOARCH=arm64 $(GO) test -exec qemu-aarch64 -run 'Golden|Digest' ./tensor/dot
	GOARCH=arm64 $(GO) test -exec qemu-aarch64 -run Golden ./tensor/ggmldot

cross: ## the platforms that releases are made for
	for p in linux/amd64 linux/arm64 darwin/amd64 darwin/arm64 windows/amd64; do \
		echo $$p; CGO_ENABLED=0 GOOS=$${p%/*} GOARCH=$${p#*/} $(GO) build -o /dev/null ./cmd/quern || exit 1; done

bench: build ## speeds beside their yardsticks, see docs/benchmarks.md
	$(GO) test -run '^$$' -bench . -benchtime 2s ./tensor/quant ./tensor/dot
	$(GO) test -run '^$$' -bench . -benchtime 3x ./stages/all
	sh internal/scripts/bench.sh
	$(MAKE) -C interop bench bench-run QUERN="$(CURDIR)/quern" # needs the peers: make -C interop setup

stream: build ## 20 GiB from a local hub through Q2_K experts to a receiver: speed, memory, disk; GIB= and RATE= change it
	GO=$(GO) sh internal/scripts/stream.sh

interop: build ## compare with the real tools; needs Python, Node and a C++ compiler
	$(MAKE) -C interop setup check QUERN=$(CURDIR)/quern

generate: ## what is generated: docs, schema, assembly
	$(GO) generate ./...
	$(GO) test ./recipes -run 'TestDocs' -update

generated: ## the generators of the assembly: their tests, and that their output is checked in (the cache of tests does not see files of other modules)
	for d in internal/_asm tensor/*/_gen runtime/*/_gen; do (cd $$d && $(GO) vet ./... && $(GO) test -count=1 ./...) || exit 1; done

clean:
	rm -rf quern out dist
