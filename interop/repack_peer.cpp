// ggml's own repacking, every layout on any host: the functions that a CPU_REPACK buffer calls for the layout that the processor
// likes best, called by name. repack.cpp is included, for they have no linkage of their own.
//
//   repack_peer LAYOUT ROWLEN ROWS EXPERTS    plain blocks on standard input, repacked ones on standard output
//
// A shape that ggml does not take gives exit code 3.

#include "repack.cpp"

#include <cstdio>
#include <string>
#include <vector>

namespace rp = ggml::cpu::repack;

struct row {
    const char * name;
    ggml_type    type;
    int (*repack)(ggml_tensor *, const void *, size_t);
};

static const row table[] = {
    { "q4_0_4x4",   GGML_TYPE_Q4_0,   rp::repack<block_q4_0, 4, 4> },
    { "q4_0_4x8",   GGML_TYPE_Q4_0,   rp::repack<block_q4_0, 8, 4> },
    { "q4_0_8x8",   GGML_TYPE_Q4_0,   rp::repack<block_q4_0, 8, 8> },
    { "q4_K_8x4",   GGML_TYPE_Q4_K,   rp::repack<block_q4_K, 4, 8> },
    { "q4_K_8x8",   GGML_TYPE_Q4_K,   rp::repack<block_q4_K, 8, 8> },
    { "q5_K_8x4",   GGML_TYPE_Q5_K,   rp::repack<block_q5_K, 4, 8> },
    { "q5_K_8x8",   GGML_TYPE_Q5_K,   rp::repack<block_q5_K, 8, 8> },
    { "q6_K_8x4",   GGML_TYPE_Q6_K,   rp::repack<block_q6_K, 4, 8> },
    { "q6_K_8x8",   GGML_TYPE_Q6_K,   rp::repack<block_q6_K, 8, 8> },
    { "q2_K_8x8",   GGML_TYPE_Q2_K,   rp::repack<block_q2_K, 8, 8> },
    { "iq4_nl_4x4", GGML_TYPE_IQ4_NL, rp::repack<block_iq4_nl, 4, 4> },
    { "iq4_nl_8x8", GGML_TYPE_IQ4_NL, rp::repack<block_iq4_nl, 8, 8> },
    { "mxfp4_4x4",  GGML_TYPE_MXFP4,  rp::repack<block_mxfp4, 4, 4> },
    { "mxfp4_8x8",  GGML_TYPE_MXFP4,  rp::repack<block_mxfp4, 8, 8> },
    { "q8_0_4x4",   GGML_TYPE_Q8_0,   rp::repack<block_q8_0, 4, 4> },
    { "q8_0_4x8",   GGML_TYPE_Q8_0,   rp::repack<block_q8_0, 8, 4> },
    { "q1_0_4x4",   GGML_TYPE_Q1_0,   rp::repack<block_q1_0, 4, 4> },
    { "q1_0_4x8",   GGML_TYPE_Q1_0,   rp::repack<block_q1_0, 8, 4> },
};

int main(int argc, char ** argv) {
    if (argc != 5) {
        std::fprintf(stderr, "usage: repack_peer LAYOUT ROWLEN ROWS EXPERTS\n");
        return 2;
    }
    for (const row & r : table) {
        if (std::string(r.name) != argv[1]) {
            continue;
        }
        ggml_init_params params = { 2 * ggml_tensor_overhead(), nullptr, true };
        ggml_context *   ctx    = ggml_init(params);
        ggml_tensor *    t      = ggml_new_tensor_3d(ctx, r.type, std::atoll(argv[2]), std::atoll(argv[3]), std::atoll(argv[4]));
        std::vector<char> in(ggml_nbytes(t)), out(ggml_nbytes(t));
        if (std::fread(in.data(), 1, in.size(), stdin) != in.size()) {
            std::fprintf(stderr, "repack_peer: %zu bytes wanted\n", in.size());
            return 2;
        }
        t->data = out.data();
        if (r.repack(t, in.data(), in.size()) != 0) {
            return 3;
        }
        return std::fwrite(out.data(), 1, out.size(), stdout) == out.size() ? 0 : 2;
    }
    std::fprintf(stderr, "repack_peer: no layout %s\n", argv[1]);
    return 2;
}
