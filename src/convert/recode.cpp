#include "convert/recode.h"

#include <algorithm>
#include <atomic>
#include <cassert>
#include <cstring>
#include <vector>

#include "base/error.h"
#include "base/printable.h"
#include "quant/decode.h"
#include "quant/encode.h"

namespace quarrel {
namespace {

constexpr std::uint64_t kPieceValues = 65'536;  // a multiple of every block
constexpr std::chrono::milliseconds kReportTime{50};

// The source as pieces of whole blocks, which any thread may take in any order. Rows that change their places are
// pieces of their own; all else is one long row, since no block crosses the end of one.
struct Pieces {
  explicit Pieces(const TensorSource& tensor) : source(tensor) {
    const bool moves = tensor.order != RowOrder::as_they_are;
    length = moves ? tensor.row : tensor.row * tensor.rows;
    per_row = (length + kPieceValues - 1) / kPieceValues;
    count = per_row * (moves ? tensor.rows : 1);
  }

  struct Piece {
    std::uint64_t from = 0;  // first value in the source
    std::uint64_t to = 0;    // and in the result
    std::uint64_t values = 0;
  };
  Piece operator[](std::uint64_t index) const {
    const std::uint64_t row = index / per_row;
    const std::uint64_t within = index % per_row * kPieceValues;
    const bool moves = source.order != RowOrder::as_they_are;
    const std::uint64_t source_row = moves ? row_in_halves(row, source.head) : row;
    return {source_row * length + within, row * length + within, std::min(kPieceValues, length - within)};
  }

  const TensorSource& source;
  std::uint64_t length = 0;  // values of what is cut into pieces
  std::uint64_t per_row = 0;
  std::uint64_t count = 0;
};

void read_bytes(const TensorSource& source, std::uint64_t from, std::span<std::byte> out) {
  if (source.file != nullptr) {
    source.file->read(source.offset + from, out);
  } else {
    std::memcpy(out.data(), source.data + from, out.size());
  }
}

// One thread's memory, used again and again.
struct Scratch {
  std::vector<std::byte> bytes;
  std::vector<float> values;
};

void recode_piece(const TensorSource& source, const Pieces::Piece& piece, QuantType type, std::span<std::byte> result,
                  Scratch& scratch) {
  const TypeInfo& from = type_info(source.type);
  const TypeInfo& to = type_info(type);
  const std::span<std::byte> out = result.subspan(row_bytes(to, piece.to), row_bytes(to, piece.values));
  const std::uint64_t begin = row_bytes(from, piece.from);
  if (source.type == type) return read_bytes(source, begin, out);
  scratch.bytes.resize(row_bytes(from, piece.values));
  scratch.values.resize(piece.values);
  read_bytes(source, begin, scratch.bytes);
  decode_row(source.type, scratch.bytes.data(), scratch.values.data(), piece.values);
  encode_row(type, scratch.values.data(), out.data(), piece.values);
}

}  // namespace

Recoder::Recoder(RecodeOptions options, std::uint64_t total)
    : options_(std::move(options)),
      total_(total),
      pool_(options_.threads > 0 ? std::min(options_.threads, usable_threads()) : usable_threads()) {}

void Recoder::report() {
  const auto now = std::chrono::steady_clock::now();
  if (!options_.progress || (done_ < total_ && now - reported_ < kReportTime)) return;
  reported_ = now;
  options_.progress(std::min(done_, total_), total_);
}

void Recoder::recode(const TensorSource& source, QuantType type, std::span<std::byte> result) {
  assert(result.size() == row_bytes(type_info(type), source.row * source.rows));
  const Pieces pieces(source);
  const std::uint64_t before = done_;
  std::atomic<std::uint64_t> next{0};
  std::atomic<std::uint64_t> finished{0};  // values
  std::atomic<bool> failed{false};
  const auto work = [&](int worker, int) {
    Scratch scratch;
    for (std::uint64_t i = next++; i < pieces.count; i = next++) {
      if (options_.stop.stop_requested()) fail(ErrorKind::cancelled, "the conversion was cancelled");
      if (failed.load(std::memory_order_relaxed)) return;
      try {
        recode_piece(source, pieces[i], type, result, scratch);
      } catch (...) {
        failed.store(true, std::memory_order_relaxed);
        throw;
      }
      finished += pieces[i].values;
      if (worker != 0) continue;
      done_ = before + row_bytes(type_info(source.type), finished.load());
      report();
    }
  };
  try {
    pool_.run(work);
  } catch (const Error& error) {
    if (error.kind() == ErrorKind::cancelled) throw;
    fail(error.kind(), "tensor '{}': {}", printable(source.name), error.what());
  }
  done_ = before + source.bytes();
  report();
  if (options_.stop.stop_requested()) fail(ErrorKind::cancelled, "the conversion was cancelled");
}

}  // namespace quarrel
