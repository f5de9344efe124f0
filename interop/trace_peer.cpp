// Runs a text through llama.cpp exactly as llama-perplexity does with its defaults, and writes what every operation gave.
//
//   trace_peer MODEL CTX OUT [PATTERN] < ids      ids: token ids in decimal, chunks of CTX one after another
//
// OUT/logits.f32   float32 logits of the scored half of every chunk, in order, little-endian
// OUT/nodes.txt    with PATTERN: a line for each node of the graph, in order of execution:
//                  number, ubatch, name, operation, type, dims a,b,c,d, "op_params" in hex, then for each source name|type|dims|buffer
// OUT/N.bin        the contents of node N, as contiguous rows, where its name matches the regular expression PATTERN;
//                  for inputs of the graph (leafs, masks, positions) that such a node uses: OUT/N.srcK.bin when they are no weights
//
// Batches of 2,048 tokens as so many sequences of CTX, physical batches of 512, flash attention as the library chooses, keys and values in F16, two
// threads. With PATTERN the scheduler hands over every node by itself, which leaves out fusing; that changes no bit.

#include "ggml-backend.h"
#include "ggml.h"
#include "llama.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <iterator>
#include <regex>
#include <string>
#include <vector>

static void fail(const std::string & what) {
    std::cerr << "trace_peer: " << what << "\n";
    std::exit(1);
}

struct tracer {
    std::string   out;
    std::regex    pattern;
    std::ofstream list;
    int           node   = 0;
    int           ubatch = 0;
};

static std::vector<char> contents(const ggml_tensor * t) {
    const size_t      row = ggml_row_size(t->type, t->ne[0]);
    std::vector<char> all(row * ggml_nrows(t));
    if (!t->data && !t->buffer) {
        return {};
    }
    char * to = all.data();
    for (int64_t d = 0; d < t->ne[3]; d++) {
        for (int64_t c = 0; c < t->ne[2]; c++) {
            for (int64_t b = 0; b < t->ne[1]; b++, to += row) {
                const char * from = (const char *) t->data + d * t->nb[3] + c * t->nb[2] + b * t->nb[1];
                if (t->nb[0] == ggml_type_size(t->type)) {
                    std::copy(from, from + row, to);
                    continue;
                }
                for (int64_t a = 0; a < t->ne[0]; a++) {
                    std::copy(from + a * t->nb[0], from + a * t->nb[0] + ggml_type_size(t->type), to + a * ggml_type_size(t->type));
                }
            }
        }
    }
    return all;
}

static void write(const std::string & path, const std::vector<char> & data) {
    std::ofstream(path, std::ios::binary).write(data.data(), data.size());
}

static std::string dims(const ggml_tensor * t) {
    return std::to_string(t->ne[0]) + "," + std::to_string(t->ne[1]) + "," + std::to_string(t->ne[2]) + "," + std::to_string(t->ne[3]);
}

static bool observe(ggml_tensor * t, bool ask, void * data) {
    tracer & tr = *(tracer *) data;
    if (ask) {
        return true;
    }
    tr.list << tr.node << "\t" << tr.ubatch << "\t" << t->name << "\t" << ggml_op_desc(t) << "\t" << ggml_type_name(t->type) << "\t" << dims(t) << "\t";
    for (size_t i = 0; i < sizeof(t->op_params) / 4; i++) {
        char word[12];
        std::snprintf(word, sizeof word, "%x", (unsigned) t->op_params[i]);
        tr.list << (i ? "," : "") << word;
    }
    const bool wanted = std::regex_search(t->name, tr.pattern);
    for (int i = 0; i < GGML_MAX_SRC && t->src[i]; i++) {
        const ggml_tensor * s = t->src[i];
        tr.list << "\t" << s->name << "|" << ggml_type_name(s->type) << "|" << dims(s) << "|" << (s->buffer ? ggml_backend_buffer_name(s->buffer) : "none");
        const bool weight = s->buffer && ggml_backend_buffer_get_usage(s->buffer) == GGML_BACKEND_BUFFER_USAGE_WEIGHTS;
        if (wanted && !weight && s->op == GGML_OP_NONE) {
            write(tr.out + "/" + std::to_string(tr.node) + ".src" + std::to_string(i) + ".bin", contents(s));
        }
    }
    tr.list << "\n";
    if (wanted) {
        write(tr.out + "/" + std::to_string(tr.node) + ".bin", contents(t));
    }
    if (std::string(t->name) == "result_output") {
        tr.ubatch++;
    }
    tr.node++;
    return true;
}

int main(int argc, char ** argv) {
    if (argc < 4) {
        fail("usage: trace_peer MODEL CTX OUT [PATTERN] < ids");
    }
    llama_log_set([](ggml_log_level level, const char * text, void *) { if (level >= GGML_LOG_LEVEL_WARN) { fputs(text, stderr); } }, nullptr);
    llama_backend_init();
    llama_model * model = llama_model_load_from_file(argv[1], llama_model_default_params());
    if (!model) {
        fail(std::string("cannot load ") + argv[1]);
    }
    const llama_vocab *      vocab = llama_model_get_vocab(model);
    const int                n_ctx = std::atoi(argv[2]);
    std::vector<llama_token> ids{std::istream_iterator<int>(std::cin), std::istream_iterator<int>()};
    const int                chunks = (int) ids.size() / n_ctx;
    const std::string        out    = argv[3];
    if (n_ctx < 1 || chunks < 1) {
        fail("fewer ids than one chunk");
    }

    tracer               tr;
    llama_context_params p = llama_context_default_params();
    p.n_seq_max            = std::max(1, 2048 / n_ctx);
    p.n_ctx                = p.n_seq_max * n_ctx;
    p.n_batch              = std::min<int>(2048, p.n_ctx);
    p.n_threads = p.n_threads_batch = 2;
    if (argc > 4) {
        tr.out     = out;
        tr.pattern = std::regex(argv[4]);
        tr.list.open(out + "/nodes.txt");
        p.cb_eval           = observe;
        p.cb_eval_user_data = &tr;
    }
    llama_context * ctx = llama_init_from_model(model, p);
    if (!ctx) {
        fail("no context");
    }
    const int     n_batch = p.n_batch, n_seq = n_batch / n_ctx > 0 ? n_batch / n_ctx : 1, first = n_ctx / 2;
    const size_t  size    = llama_vocab_n_tokens(vocab);
    const bool    bos     = llama_vocab_get_add_bos(vocab);
    std::cout << (bos ? llama_vocab_bos(vocab) : -1) << "\n"; // what each chunk begins with; -1: its own first token
    std::ofstream logits(out + "/logits.f32", std::ios::binary);
    for (int i = 0; i < chunks; i += n_seq) {
        const int seqs = std::min(n_seq, chunks - i);
        llama_memory_clear(llama_get_memory(ctx), true);
        for (int start = 0; start < n_ctx; start += n_batch) {
            const int   n     = std::min(n_ctx - start, n_batch);
            llama_batch batch = llama_batch_init(seqs * n, 0, 1);
            batch.n_tokens    = seqs * n;
            for (int at = 0; at < batch.n_tokens; at++) {
                const int seq = at / n, pos = start + at % n;
                batch.token[at]     = bos && pos == 0 ? llama_vocab_bos(vocab) : ids[(i + seq) * n_ctx + pos];
                batch.pos[at]       = pos;
                batch.n_seq_id[at]  = 1;
                batch.seq_id[at][0] = seq;
                batch.logits[at]    = pos >= first;
            }
            if (llama_decode(ctx, batch) != 0) {
                fail("decode failed");
            }
            for (int at = 0; at < batch.n_tokens; at++) {
                if (batch.logits[at]) {
                    logits.write((const char *) llama_get_logits_ith(ctx, at), size * sizeof(float));
                }
            }
            llama_batch_free(batch);
        }
    }
    return 0;
}
