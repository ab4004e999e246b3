#include "convert/hugging_face_names.h"

#include <algorithm>
#include <array>

namespace quarrel {
namespace {

constexpr std::array kBertTensors = {
    TensorRule{"embeddings.word_embeddings.weight", "token_embd.weight"},
    TensorRule{"embeddings.token_type_embeddings.weight", "token_types.weight"},
    TensorRule{"embeddings.position_embeddings.weight", "position_embd.weight", RowRole::positions},
    TensorRule{"embeddings.LayerNorm.weight", "token_embd_norm.weight"},
    TensorRule{"embeddings.LayerNorm.bias", "token_embd_norm.bias"},
    TensorRule{"encoder.layer.{}.attention.self.query.weight", "blk.{}.attn_q.weight"},
    TensorRule{"encoder.layer.{}.attention.self.query.bias", "blk.{}.attn_q.bias"},
    TensorRule{"encoder.layer.{}.attention.self.key.weight", "blk.{}.attn_k.weight"},
    TensorRule{"encoder.layer.{}.attention.self.key.bias", "blk.{}.attn_k.bias"},
    TensorRule{"encoder.layer.{}.attention.self.value.weight", "blk.{}.attn_v.weight"},
    TensorRule{"encoder.layer.{}.attention.self.value.bias", "blk.{}.attn_v.bias"},
    TensorRule{"encoder.layer.{}.attention.output.dense.weight", "blk.{}.attn_output.weight"},
    TensorRule{"encoder.layer.{}.attention.output.dense.bias", "blk.{}.attn_output.bias"},
    TensorRule{"encoder.layer.{}.attention.output.LayerNorm.weight", "blk.{}.attn_output_norm.weight"},
    TensorRule{"encoder.layer.{}.attention.output.LayerNorm.bias", "blk.{}.attn_output_norm.bias"},
    TensorRule{"encoder.layer.{}.intermediate.dense.weight", "blk.{}.ffn_up.weight"},
    TensorRule{"encoder.layer.{}.intermediate.dense.bias", "blk.{}.ffn_up.bias"},
    TensorRule{"encoder.layer.{}.output.dense.weight", "blk.{}.ffn_down.weight"},
    TensorRule{"encoder.layer.{}.output.dense.bias", "blk.{}.ffn_down.bias"},
    TensorRule{"encoder.layer.{}.output.LayerNorm.weight", "blk.{}.layer_output_norm.weight"},
    TensorRule{"encoder.layer.{}.output.LayerNorm.bias", "blk.{}.layer_output_norm.bias"},
};

constexpr std::array kNomicBertTensors = {
    TensorRule{"embeddings.word_embeddings.weight", "token_embd.weight"},
    TensorRule{"embeddings.token_type_embeddings.weight", "token_types.weight"},
    TensorRule{"emb_ln.weight", "token_embd_norm.weight"},
    TensorRule{"emb_ln.bias", "token_embd_norm.bias"},
    TensorRule{"encoder.layers.{}.attn.Wqkv.weight", "blk.{}.attn_qkv.weight"},
    TensorRule{"encoder.layers.{}.attn.out_proj.weight", "blk.{}.attn_output.weight"},
    TensorRule{"encoder.layers.{}.norm1.weight", "blk.{}.attn_output_norm.weight"},
    TensorRule{"encoder.layers.{}.norm1.bias", "blk.{}.attn_output_norm.bias"},
    TensorRule{"encoder.layers.{}.mlp.fc11.weight", "blk.{}.ffn_up.weight"},
    TensorRule{"encoder.layers.{}.mlp.fc12.weight", "blk.{}.ffn_gate.weight"},
    TensorRule{"encoder.layers.{}.mlp.fc2.weight", "blk.{}.ffn_down.weight"},
    TensorRule{"encoder.layers.{}.norm2.weight", "blk.{}.layer_output_norm.weight"},
    TensorRule{"encoder.layers.{}.norm2.bias", "blk.{}.layer_output_norm.bias"},
};

// What the decoders here have or may have; each reads what its configuration promises.
constexpr std::array kDecoderTensors = {
    TensorRule{"model.embed_tokens.weight", "token_embd.weight"},
    TensorRule{"model.norm.weight", "output_norm.weight"},
    TensorRule{"lm_head.weight", "output.weight", RowRole::output},
    TensorRule{"model.layers.{}.input_layernorm.weight", "blk.{}.attn_norm.weight"},
    TensorRule{"model.layers.{}.self_attn.q_proj.weight", "blk.{}.attn_q.weight", RowRole::query},
    TensorRule{"model.layers.{}.self_attn.q_proj.bias", "blk.{}.attn_q.bias", RowRole::query, true},
    TensorRule{"model.layers.{}.self_attn.k_proj.weight", "blk.{}.attn_k.weight", RowRole::key},
    TensorRule{"model.layers.{}.self_attn.k_proj.bias", "blk.{}.attn_k.bias", RowRole::key, true},
    TensorRule{"model.layers.{}.self_attn.v_proj.weight", "blk.{}.attn_v.weight"},
    TensorRule{"model.layers.{}.self_attn.v_proj.bias", "blk.{}.attn_v.bias", RowRole::plain, true},
    TensorRule{"model.layers.{}.self_attn.o_proj.weight", "blk.{}.attn_output.weight"},
    TensorRule{"model.layers.{}.self_attn.o_proj.bias", "blk.{}.attn_output.bias", RowRole::plain, true},
    TensorRule{"model.layers.{}.post_attention_layernorm.weight", "blk.{}.ffn_norm.weight"},
    TensorRule{"model.layers.{}.mlp.gate_proj.weight", "blk.{}.ffn_gate.weight"},
    TensorRule{"model.layers.{}.mlp.up_proj.weight", "blk.{}.ffn_up.weight"},
    TensorRule{"model.layers.{}.mlp.down_proj.weight", "blk.{}.ffn_down.weight"},
    // The norms stand last, so that the table without them is the one of the models without them.
    TensorRule{"model.layers.{}.self_attn.q_norm.weight", "blk.{}.attn_q_norm.weight"},
    TensorRule{"model.layers.{}.self_attn.k_norm.weight", "blk.{}.attn_k_norm.weight"},
};
constexpr std::span<const TensorRule> kWithHeadNorms = kDecoderTensors;
constexpr std::span<const TensorRule> kWithoutHeadNorms = kWithHeadNorms.first(kDecoderTensors.size() - 2);

constexpr std::array kFamilies = {
    ModelFamily{"BertModel", "bert", ConfigKind::encoder, false, "bert.", kBertTensors},
    ModelFamily{"NomicBertModel", "nomic-bert", ConfigKind::rotary_encoder, false, "", kNomicBertTensors},
    ModelFamily{"LlamaForCausalLM", "llama", ConfigKind::decoder, true, "", kWithoutHeadNorms},
    ModelFamily{"MistralForCausalLM", "llama", ConfigKind::decoder, true, "", kWithoutHeadNorms},
    ModelFamily{"Qwen2ForCausalLM", "qwen2", ConfigKind::decoder, false, "", kWithoutHeadNorms},
    ModelFamily{"Qwen3ForCausalLM", "qwen3", ConfigKind::decoder, false, "", kWithHeadNorms},
};

}  // namespace

std::span<const ModelFamily> model_families() noexcept { return kFamilies; }

bool is_ignored_tensor(std::string_view name) noexcept {
  constexpr std::array<std::string_view, 2> kEnds = {".position_ids", ".inv_freq"};
  constexpr std::array<std::string_view, 2> kBeginnings = {"pooler.", "cls."};
  if (name.starts_with("bert.")) name.remove_prefix(5);
  return std::ranges::any_of(kEnds, [&](std::string_view end) { return name.ends_with(end); }) ||
         std::ranges::any_of(kBeginnings, [&](std::string_view begin) { return name.starts_with(begin); });
}

}  // namespace quarrel
