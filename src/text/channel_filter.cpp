#include "text/channel_filter.h"

#include <algorithm>

namespace quarrel {
namespace {

constexpr std::string_view kFinal = "final";
constexpr std::size_t kLongestName = 64;  // of a channel; what is longer is none that we know

}  // namespace

std::optional<ChannelFilter::Marks> ChannelFilter::find_marks(const Tokenizer& tokenizer) {
  const auto find = [&](std::string_view spelling) {
    const auto id = tokenizer.find(spelling);
    return id && tokenizer.is_hidden(*id) ? *id : TokenId{-1};
  };
  Marks marks{.start = find("<|start|>"),
              .channel = find("<|channel|>"),
              .constrain = find("<|constrain|>"),
              .message = find("<|message|>"),
              .end = find("<|end|>"),
              .ret = find("<|return|>"),
              .call = find("<|call|>")};
  if (marks.start < 0 || marks.channel < 0 || marks.message < 0 || marks.end < 0) return std::nullopt;
  return marks;
}

std::optional<ChannelFilter> ChannelFilter::after(const Tokenizer& tokenizer, std::span<const TokenId> prompt) {
  const std::optional<Marks> marks = find_marks(tokenizer);
  if (!marks) return std::nullopt;
  const auto last = std::find(prompt.rbegin(), prompt.rend(), marks->start);
  if (last == prompt.rend()) return std::nullopt;
  ChannelFilter filter(tokenizer, *marks);
  for (const TokenId id : prompt.subspan(static_cast<std::size_t>(prompt.rend() - last) - 1)) filter.take(id);
  return filter;
}

// A message without a channel is for everybody.
bool ChannelFilter::is_answer() const noexcept {
  const std::string_view name = std::string_view(channel_).substr(0, channel_.find(' '));
  return channel_.empty() || name == kFinal;
}

bool ChannelFilter::take(TokenId id) {
  if (id == marks_.start) {
    place_ = Place::header;
    channel_.clear();
  } else if (id == marks_.channel) {
    place_ = Place::name;
    channel_.clear();
  } else if (id == marks_.constrain && place_ == Place::name) {
    place_ = Place::header;
  } else if (id == marks_.message) {
    place_ = Place::text;
  } else if (id == marks_.end || id == marks_.ret || id == marks_.call) {
    place_ = Place::between;
  } else if (place_ == Place::name && channel_.size() < kLongestName) {
    channel_ += tokenizer_->piece(id, false, false);
  } else {
    return place_ == Place::text && is_answer();
  }
  return false;
}

}  // namespace quarrel
