// The functions of quarrel_c.h that turn texts into vectors.
#include <cstdint>
#include <memory>
#include <string>

#include "api/c_support.h"

namespace quarrel::api {
namespace {

std::vector<std::string> strings_of(const quarrel_text* texts, std::size_t count) {
  const auto given = check_array(texts, count, "the list of texts");
  std::vector<std::string> list;
  list.reserve(given.size());
  for (const quarrel_text& text : given) list.emplace_back(view_of(text, "a text"));
  return list;
}

std::unique_ptr<quarrel_embeddings> handle_of(std::vector<Embedding> embeddings) {
  auto handle = std::make_unique<quarrel_embeddings>();
  handle->texts.reserve(embeddings.size());
  for (Embedding& from : embeddings) {
    quarrel_embeddings::Text& text = handle->texts.emplace_back();
    text.tokens = from.tokens;
    text.full_tokens = from.full_tokens;
    text.cut = from.cut;
    if (from.token_vectors.empty()) {
      text.values = std::move(from.values);
      text.width = text.values.size();
      text.vectors = 1;
      continue;
    }
    text.width = from.token_vectors.front().size();
    text.vectors = from.token_vectors.size();
    text.values.reserve(text.width * text.vectors);
    for (const std::vector<float>& row : from.token_vectors) {
      text.values.insert(text.values.end(), row.begin(), row.end());
    }
  }
  return handle;
}

// Rows one after the other.
std::vector<float> joined(const std::vector<std::vector<float>>& rows) {
  std::vector<float> all;
  for (const std::vector<float>& row : rows) all.insert(all.end(), row.begin(), row.end());
  return all;
}

}  // namespace
}  // namespace quarrel::api

namespace api = quarrel::api;

extern "C" {

quarrel_status quarrel_embed(const quarrel_model* model, const quarrel_text* texts, size_t count, float* values,
                             size_t capacity, size_t* needed, quarrel_error* error) {
  return api::run(error, [&] {
    size_t& result = api::check_pointer(needed, "the place for the count");
    result = 0;
    const api::Model& loaded = api::check_handle(model, "model").model;
    const std::vector<std::string> list = api::strings_of(texts, count);
    const auto width = static_cast<std::size_t>(loaded.info().embedding_width);
    result = width * list.size();
    if (result > capacity) throw api::TooSmall{.needed = result, .capacity = capacity};
    if (result > 0) api::check_pointer(values, "the array");
    float* next = values;
    for (const api::Embedding& embedding : loaded.embed(list)) {
      next = std::copy(embedding.values.begin(), embedding.values.end(), next);
    }
  });
}

quarrel_status quarrel_embed_texts(const quarrel_model* model, const quarrel_text* texts, size_t count,
                                   const quarrel_embed_options* options, quarrel_embeddings** embeddings,
                                   quarrel_error* error) {
  return api::run(error, [&] {
    api::check_pointer(embeddings, "the place for the embeddings") = nullptr;
    const api::Model& loaded = api::check_handle(model, "model").model;
    const std::vector<std::string> list = api::strings_of(texts, count);
    *embeddings = api::handle_of(loaded.embed(list, api::embed_options_of(options))).release();
  });
}

quarrel_status quarrel_embed_tokens(const quarrel_model* model, const quarrel_token_list* texts, size_t count,
                                    const quarrel_embed_options* options, quarrel_embeddings** embeddings,
                                    quarrel_error* error) {
  return api::run(error, [&] {
    api::check_pointer(embeddings, "the place for the embeddings") = nullptr;
    const api::Model& loaded = api::check_handle(model, "model").model;
    std::vector<std::vector<api::Token>> lists;
    for (const quarrel_token_list& list : api::check_array(texts, count, "the list of texts")) {
      const auto tokens = api::check_array(list.tokens, list.count, "a text's tokens");
      lists.emplace_back(tokens.begin(), tokens.end());
    }
    *embeddings = api::handle_of(loaded.embed(lists, api::embed_options_of(options))).release();
  });
}

quarrel_status quarrel_embeddings_get_info(const quarrel_embeddings* embeddings, size_t text,
                                           quarrel_embedding_info* info, quarrel_error* error) {
  return api::run(error, [&] {
    const quarrel_embeddings& all = api::check_handle(embeddings, "list of embeddings");
    if (text >= all.texts.size()) {
      api::refuse(api::ErrorKind::bad_input, "there are {} texts, but number {} was asked for", all.texts.size(), text);
    }
    const quarrel_embeddings::Text& from = all.texts[text];
    const quarrel_embedding_info shown{.size = sizeof(quarrel_embedding_info),
                                       .cut = from.cut ? 1 : 0,
                                       .full_tokens = from.full_tokens,
                                       .tokens = from.tokens,
                                       .values = from.values.data(),
                                       .width = from.width,
                                       .vectors = from.vectors};
    api::write_struct(info, shown, "the embedding's info");
  });
}

void quarrel_embeddings_free(quarrel_embeddings* embeddings) { api::free_handle(embeddings); }

quarrel_status quarrel_embedding_rows(const quarrel_model* model, const quarrel_token* tokens, size_t count,
                                      float* values, size_t capacity, size_t* needed, quarrel_error* error) {
  return api::give_array(model, values, capacity, needed, error, [&](const api::Model& loaded) {
    return api::joined(loaded.embedding_rows(api::check_array(tokens, count, "the list of tokens")));
  });
}

quarrel_status quarrel_embedding_rows_of_text(const quarrel_model* model, quarrel_text text, float* values,
                                              size_t capacity, size_t* needed, quarrel_error* error) {
  return api::give_array(model, values, capacity, needed, error, [&](const api::Model& loaded) {
    return api::joined(loaded.embedding_rows(api::view_of(text, "the text")));
  });
}

}  // extern "C"
