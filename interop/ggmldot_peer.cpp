// Matrix products by ggml's CPU backend, in graphs of one node, as llama.cpp computes them.
//
//   ggmldot_peer [LIBRARY]    a libggml-cpu-*.so to load; without one the program has the backend built in
//
// Standard input holds requests, standard output answers, all numbers little-endian:
//
//   request  int32 type, width, rows, columns, repacked, threads, repeats
//            weights: rows rows of ggml's blocks;  activations: float32 columns x width
//   answer   int32 0, or 1 if the backend has no such product; float64 seconds of the fastest repeat
//            results: float32 columns x rows
//
// "repacked" puts the weights into the CPU_REPACK buffer.

#include "ggml-alloc.h"
#include "ggml-backend.h"
#include "ggml.h"

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

static bool read_all(void * to, size_t n) { return std::fread(to, 1, n, stdin) == n; }

static bool write_all(const void * from, size_t n) { return std::fwrite(from, 1, n, stdout) == n; }

// repack_type is the CPU_REPACK buffer type.
static ggml_backend_buffer_type_t repack_type(ggml_backend_dev_t dev) {
    auto get = (ggml_backend_dev_get_extra_bufts_t) ggml_backend_reg_get_proc_address(ggml_backend_dev_backend_reg(dev), "ggml_backend_dev_get_extra_bufts");
    if (!get) {
        return nullptr;
    }
    for (ggml_backend_buffer_type_t * b = get(dev); b && *b; b++) {
        if (!std::strcmp(ggml_backend_buft_name(*b), "CPU_REPACK")) {
            return *b;
        }
    }
    return nullptr;
}

int main(int argc, char ** argv) {
    // Every repacked matrix has a line in the log.
    ggml_log_set([](ggml_log_level level, const char * text, void *) {
        if (level == GGML_LOG_LEVEL_ERROR) {
            std::fputs(text, stderr);
        }
    }, nullptr);
    if (argc > 1 && !ggml_backend_load(argv[1])) {
        std::fprintf(stderr, "ggmldot_peer: %s is no backend\n", argv[1]);
        return 2;
    }
    ggml_backend_dev_t dev = ggml_backend_dev_by_type(GGML_BACKEND_DEVICE_TYPE_CPU);
    if (!dev) {
        std::fprintf(stderr, "ggmldot_peer: no CPU backend\n");
        return 2;
    }
    ggml_backend_t backend = ggml_backend_dev_init(dev, nullptr);
    auto threads = (ggml_backend_set_n_threads_t) ggml_backend_reg_get_proc_address(ggml_backend_dev_backend_reg(dev), "ggml_backend_set_n_threads");

    int32_t h[7];
    while (read_all(h, sizeof h)) {
        const ggml_type type = (ggml_type) h[0];
        const int64_t width = h[1], rows = h[2], columns = h[3];
        ggml_init_params params = { 8 * ggml_tensor_overhead() + ggml_graph_overhead(), nullptr, true };
        ggml_context * ctx = ggml_init(params);
        ggml_tensor * w = ggml_new_tensor_2d(ctx, type, width, rows);
        ggml_tensor * x = ggml_new_tensor_2d(ctx, GGML_TYPE_F32, width, columns);
        ggml_tensor * y = ggml_mul_mat(ctx, w, x);
        std::vector<char> weights(ggml_nbytes(w)), activations(ggml_nbytes(x));
        if (!read_all(weights.data(), weights.size()) || !read_all(activations.data(), activations.size())) {
            std::fprintf(stderr, "ggmldot_peer: the request ends early\n");
            return 2;
        }
        ggml_backend_buffer_type_t plain = ggml_backend_get_default_buffer_type(backend);
        ggml_backend_buffer_type_t type_of_w = h[4] ? repack_type(dev) : plain;
        int32_t status = type_of_w == nullptr;
        ggml_backend_buffer_t buffers[2] = {};
        if (!status) {
            buffers[0] = ggml_backend_buft_alloc_buffer(type_of_w, ggml_backend_buft_get_alloc_size(type_of_w, w) + 512);
            ggml_backend_tensor_alloc(buffers[0], w, ggml_backend_buffer_get_base(buffers[0]));
            // What has no repacked form has no traits, and may not be written.
            status = h[4] && !w->extra;
        }
        if (!status) {
            buffers[1] = ggml_backend_alloc_ctx_tensors_from_buft(ctx, plain);
            ggml_backend_tensor_set(w, weights.data(), 0, weights.size());
            ggml_backend_tensor_set(x, activations.data(), 0, activations.size());
            threads(backend, h[5]);
            status = !ggml_backend_supports_op(backend, y);
        }
        double best = 0;
        std::vector<char> out(ggml_nbytes(y));
        if (!status) {
            ggml_cgraph * graph = ggml_new_graph_custom(ctx, 4, false);
            ggml_build_forward_expand(graph, y);
            for (int i = 0; i < h[6]; i++) {
                auto start = std::chrono::steady_clock::now();
                if (ggml_backend_graph_compute(backend, graph) != GGML_STATUS_SUCCESS) {
                    std::fprintf(stderr, "ggmldot_peer: the product failed\n");
                    return 2;
                }
                double s = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
                best = i == 0 || s < best ? s : best;
            }
            ggml_backend_tensor_get(y, out.data(), 0, out.size());
        }
        if (!write_all(&status, sizeof status) || !write_all(&best, sizeof best) || (!status && !write_all(out.data(), out.size()))) {
            return 2;
        }
        std::fflush(stdout);
        for (ggml_backend_buffer_t b : buffers) {
            if (b) {
                ggml_backend_buffer_free(b);
            }
        }
        ggml_free(ctx);
    }
    ggml_backend_free(backend);
    return 0;
}
