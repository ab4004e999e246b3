// Vectors as files and pipes want them: JSON, a JSON object a line, raw float32, or NumPy's format. The text of many
// vectors is handed on piece by piece and never held whole. One thread.
#pragma once

#include <cstddef>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace quarrel {

enum class VectorFormat { json, jsonl, f32, npy };

// Takes "json", "jsonl", "f32" or "npy"; throws Error(usage).
VectorFormat vector_format_of(const std::string& name);
// Bytes that a terminal would choke on.
bool is_binary(VectorFormat format) noexcept;

// How many vectors there will be (of all texts together), and how many values each has: the header of npy says it.
struct VectorShape {
  std::size_t vectors = 0;
  std::size_t width = 0;
};

class VectorWriter {
 public:
  using Sink = std::function<void(std::string_view)>;

  // `by_token`: a text has a vector for each of its tokens instead of one, and JSON nests them one level deeper; the
  // binary formats hold the vectors of all texts one after another.
  VectorWriter(VectorFormat format, bool by_token, VectorShape shape, Sink sink);

  // The next text's vectors: one, or one a token.
  void add(std::size_t tokens, std::span<const std::vector<float>> vectors);
  // What closes the whole; nothing may follow.
  void finish();

 private:
  std::string json_of(std::span<const std::vector<float>> vectors) const;

  VectorFormat format_;
  bool by_token_;
  Sink sink_;
  std::size_t texts_ = 0;
};

}  // namespace quarrel
