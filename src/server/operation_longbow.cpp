#include "server/longbow_request.h"
#include "server/operation.h"
#include "server/schema.h"

namespace quarrel {
namespace {

using namespace schema;

constexpr std::string_view kStoreTag = "Vector store";

}  // namespace

std::vector<Operation::Failure> store_errors() { return {{404}, {501}, {502}}; }

Json sources_schema() {
  return list(named("Source", object({{"number", integer("the text stands as [number] in the prompt")},
                                      {"cut", boolean("to what there was room for"), false},
                                      {"score", number("higher is nearer")},
                                      {"id", integer()},
                                      {"text", text("as it stands there")},
                                      {"doc_id", text("the id that it was stored with"), false},
                                      {"source", text(), false},
                                      {"metadata", any(), false}})),
              "with `retrieval`: the texts that the question was asked with");
}

Operation describe_embed_to() {
  return {.id = "embedTo",
          .tag = kStoreTag,
          .description =
              "Each text is stored once, however often the request is sent: a journal of the server knows "
              "what the dataset has. Hosts are reached that the settings name (`longbow.hosts`), no others.",
          .body = embed_to_schema(),
          .example = {{"model", "minilm"},
                      {"to", "longbow://localhost/notes"},
                      {"texts", {{{"id", "1"}, {"text", "The fox is red"}, {"metadata", {{"page", 7}}}}}}},
          .queued = true,
          .answers = {{.schema = named("EmbedToAnswer",
                                       object({{"model", text()},
                                               {"to", text("the address in full")},
                                               {"texts", integer("of the request")},
                                               {"stored", integer("of these, now")},
                                               {"stored_before", integer("of these, by earlier requests")},
                                               {"repeated", integer("of these, alike")},
                                               {"tokens", integer("of those stored now")},
                                               {"bytes", integer("sent")},
                                               {"unindexed", integer("rows that the store does not search")}}))}},
          .errors = store_errors()};
}

Operation describe_store_search() {
  const Json result = named("FoundText", object({{"score", number("higher is nearer")},
                                                 {"id", integer()},
                                                 {"text", text(), false},
                                                 {"doc_id", text("the id that it was stored with"), false},
                                                 {"source", text(), false},
                                                 {"metadata", any(), false}},
                                                "without a text it is no longer stored"));
  return {.id = "searchStore",
          .tag = kStoreTag,
          .body = store_search_schema(),
          .example = {{"model", "minilm"}, {"from", "longbow://localhost/notes"}, {"query", "a red animal"}, {"k", 3}},
          .queued = true,
          .answers = {{.schema = named("StoreSearchAnswer", object({{"model", text()},
                                                                    {"from", text("the address in full")},
                                                                    {"results", list(result, "the nearest first")}}))}},
          .errors = store_errors()};
}

}  // namespace quarrel
