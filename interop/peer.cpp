// A thin window onto the real llama.cpp for check.py: loads a GGUF file as any program of its users would and says what it makes of it.
//
//   peer greedy MODEL N           N token ids, the first is BOS, each next the most likely one (the lowest id among equals)
//   peer logits MODEL ID,ID,...   float32 logits of every position, little-endian, on standard output
//   peer tokenize MODEL           token ids of standard input, BOS as the vocabulary wants it, no special tokens in the text
//   peer texts MODEL              many texts, a u32 with the length before each: a line of JSON for each with the ids as plain text, those with special
//                                 tokens taken for these, and the bytes that the latter decode to
//   peer ids MODEL                the same as tokenize for many texts, a u32 with the length before each: a line of ids for each, without BOS
//
// The KV cache is float32, so that what differs is the model and not the cache.

#include "llama.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <iostream>
#include <sstream>
#include <string>
#include <vector>

static void fail(const std::string & what) {
    std::cerr << "peer: " << what << "\n";
    std::exit(1);
}

static llama_context * open_context(llama_model * model, uint32_t n) {
    llama_context_params p = llama_context_default_params();
    p.n_ctx           = n;
    p.n_batch         = n;
    p.n_ubatch        = n;
    p.n_threads       = 1;
    p.n_threads_batch = 1;
    p.type_k          = GGML_TYPE_F32;
    p.type_v          = GGML_TYPE_F32;
    p.flash_attn_type = LLAMA_FLASH_ATTN_TYPE_DISABLED;
    llama_context * ctx = llama_init_from_model(model, p);
    if (!ctx) {
        fail("no context");
    }
    return ctx;
}

static void greedy(llama_model * model, int n) {
    const llama_vocab * vocab = llama_model_get_vocab(model);
    llama_context *     ctx   = open_context(model, n + 8);
    const int           size  = llama_vocab_n_tokens(vocab);
    llama_token         token = llama_vocab_bos(vocab);
    for (int i = 0; i < n; i++) {
        std::cout << token << (i + 1 < n ? " " : "\n");
        if (llama_decode(ctx, llama_batch_get_one(&token, 1)) != 0) {
            fail("decode failed");
        }
        const float * l = llama_get_logits_ith(ctx, -1);
        int           best = 0;
        for (int j = 1; j < size; j++) {
            if (l[j] > l[best]) {
                best = j;
            }
        }
        token = best;
    }
}

static void logits(llama_model * model, const std::string & list) {
    std::vector<llama_token> tokens;
    std::stringstream        in(list);
    for (std::string id; std::getline(in, id, ',');) {
        tokens.push_back(std::atoi(id.c_str()));
    }
    llama_context * ctx   = open_context(model, tokens.size() + 8);
    llama_batch     batch = llama_batch_init(tokens.size(), 0, 1);
    for (size_t i = 0; i < tokens.size(); i++) {
        batch.token[i]     = tokens[i];
        batch.pos[i]       = i;
        batch.n_seq_id[i]  = 1;
        batch.seq_id[i][0] = 0;
        batch.logits[i]    = 1;
    }
    batch.n_tokens = tokens.size();
    if (llama_decode(ctx, batch) != 0) {
        fail("decode failed");
    }
    const size_t size = llama_vocab_n_tokens(llama_model_get_vocab(model));
    for (size_t i = 0; i < tokens.size(); i++) {
        fwrite(llama_get_logits_ith(ctx, i), sizeof(float), size, stdout);
    }
}

static void tokenize(llama_model * model, const std::string & text, bool special) {
    std::vector<llama_token> out(text.size() + 8);
    const int n = llama_tokenize(llama_model_get_vocab(model), text.data(), text.size(), out.data(), out.size(), special, false);
    if (n < 0) {
        fail("tokenize failed");
    }
    for (int i = 0; i < n; i++) {
        std::cout << (i ? " " : "") << out[i];
    }
    std::cout << "\n";
}

static std::vector<llama_token> ids_of(const llama_vocab * vocab, const std::string & text, bool parse) {
    std::vector<llama_token> out(text.size() + 8);
    const int n = llama_tokenize(vocab, text.data(), text.size(), out.data(), out.size(), false, parse);
    if (n < 0) {
        fail("tokenize failed");
    }
    out.resize(n);
    return out;
}

template <typename T> static void print_list(const char * name, const std::vector<T> & list, const char * end) {
    std::cout << '"' << name << "\": [";
    for (size_t i = 0; i < list.size(); i++) {
        std::cout << (i ? ", " : "") << (long) list[i];
    }
    std::cout << "]" << end;
}

static void texts(llama_model * model) {
    const llama_vocab * vocab = llama_model_get_vocab(model);
    const std::string   in((std::istreambuf_iterator<char>(std::cin)), std::istreambuf_iterator<char>());
    for (size_t at = 0; at + 4 <= in.size();) {
        uint32_t n;
        std::memcpy(&n, in.data() + at, 4);
        const std::string text   = in.substr(at + 4, n);
        const auto        parsed = ids_of(vocab, text, true);
        std::string       back(text.size() * 4 + 256, 0);
        const int         size = llama_detokenize(vocab, parsed.data(), parsed.size(), back.data(), back.size(), false, true);
        if (size < 0) {
            fail("detokenize failed");
        }
        std::cout << "{";
        print_list("plain", ids_of(vocab, text, false), ", ");
        print_list("parsed", parsed, ", ");
        print_list("text", std::vector<unsigned char>(back.begin(), back.begin() + size), "}\n");
        at += 4 + n;
    }
}

static void tokenize_all(llama_model * model) {
    const std::string in((std::istreambuf_iterator<char>(std::cin)), std::istreambuf_iterator<char>());
    for (size_t at = 0; at + 4 <= in.size();) {
        uint32_t n;
        std::memcpy(&n, in.data() + at, 4);
        tokenize(model, in.substr(at + 4, n), false);
        at += 4 + n;
    }
}

int main(int argc, char ** argv) {
    if (argc < 3) {
        fail("usage: peer greedy MODEL N | logits MODEL IDS | tokenize MODEL | texts MODEL | ids MODEL");
    }
    llama_log_set([](ggml_log_level level, const char * text, void *) { if (level >= GGML_LOG_LEVEL_WARN) { fputs(text, stderr); } }, nullptr);
    llama_backend_init();
    llama_model_params p = llama_model_default_params();
    p.vocab_only = std::strcmp(argv[1], "tokenize") == 0 || std::strcmp(argv[1], "ids") == 0 || std::strcmp(argv[1], "texts") == 0;
    llama_model * model = llama_model_load_from_file(argv[2], p);
    if (!model) {
        fail(std::string("cannot load ") + argv[2]);
    }
    const std::string mode = argv[1];
    if (mode == "greedy" && argc == 4) {
        greedy(model, std::atoi(argv[3]));
    } else if (mode == "logits" && argc == 4) {
        logits(model, argv[3]);
    } else if (mode == "tokenize") {
        tokenize(model, std::string((std::istreambuf_iterator<char>(std::cin)), std::istreambuf_iterator<char>()), true);
    } else if (mode == "texts") {
        texts(model);
    } else if (mode == "ids") {
        tokenize_all(model);
    } else {
        fail("unknown mode");
    }
    return 0;
}
