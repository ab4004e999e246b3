// What the documentation says of a route beyond its row: what a body holds, what an answer is, which errors it has
// beside those that every route has. A function a route, named in its row; openapi.cpp calls them. Any thread.
#pragma once

#include <string_view>
#include <vector>

#include "server/fields.h"

namespace quarrel {

struct Operation {
  struct Answer {
    std::string_view media_type = "application/json";  // empty: it has no body
    Json schema = nullptr;                             // null: none is told; of events: each of them is this
    unsigned status = 200;
  };

  std::string_view id = {};           // a name for generated clients: letters alone
  std::string_view tag = {};          // the heading it stands under
  std::string_view description = {};  // what its summary does not say
  Json body = nullptr;                // its schema; null: none is sent
  bool body_required = true;          // without one it is as if an empty object had come
  Json example = nullptr;             // of a body
  bool queued = false;                // it waits for its turn at a model, so that x-quarrel-priority counts
  struct Header {
    std::string_view name;
    Json schema;
    bool required = false;
  };
  std::vector<Header> headers = {};  // that the request may have besides those of every request
  std::vector<Answer> answers = {};  // where it goes well
  struct Failure {
    unsigned status = 0;
    Json schema = nullptr;  // null: what errors of the row's dialect look like
  };
  std::vector<Failure> errors = {};  // beyond those that follow from the row, or in place of them
};

// OpenAI's (operation_openai.cpp).
Operation describe_openai_chat();
Operation describe_openai_completion();
Operation describe_openai_embeddings();
Operation describe_openai_models();
Operation describe_openai_model();

// Ollama's (operation_ollama.cpp).
Operation describe_ollama_chat();
Operation describe_ollama_embed();
Operation describe_ollama_embeddings();
Operation describe_ollama_tags();
Operation describe_ollama_show();
Operation describe_ollama_ps();
Operation describe_ollama_delete();
Operation describe_ollama_copy();
Operation describe_ollama_pull();
Operation describe_ollama_push();
Operation describe_ollama_create();
Operation describe_ollama_version();
Json ollama_generate_answer_schema();

// Quarrel's own (operation_native.cpp; those about models and texts operation_models.cpp).
Operation describe_shared_generate();
Operation describe_native_generate();
Operation describe_native_stream();
Operation describe_stop_stream();
Operation describe_websocket();
Operation describe_native_models();
Operation describe_native_model();
Operation describe_load_model();
Operation describe_unload_model();
Operation describe_clear_model_cache();
Operation describe_tokenize();
Operation describe_detokenize();
Operation describe_apply_template();
Operation describe_rerank();
Operation describe_openai_rerank();
// Of an answer with `retrieval`, and how one may fail; operation_longbow.cpp, like the next two.
Json sources_schema();
std::vector<Operation::Failure> store_errors();
Operation describe_embed_to();
Operation describe_store_search();
Operation describe_health();
Operation describe_v1_health();
Operation describe_api_health();
Operation describe_healthz();
Operation describe_readiness();
Operation describe_metrics();
Operation describe_metrics_json();
Operation describe_version();
Operation describe_openapi_json();
Operation describe_openapi_yaml();
Operation describe_page_root();
Operation describe_page_status();
Operation describe_page_embeddings();
Operation describe_page_asset();
Operation describe_docs();
Operation describe_docs_script();
Operation describe_docs_style();

}  // namespace quarrel
