#pragma once

/// Media spans in frames of raw numbers: each attachment of a frame goes once, with its first span.
///
///   count, then for each span: begin, end, number of its attachment; a number that is new is the next one,
///   and type, bytes, key and grid follow
///
/// `Writer` and `Reader` are those of net/binary.h or train/share_frame.cpp.

#include "core/token_span.h"

namespace slime {

/// Calls fn(member) for each. `attachment`: const or not.
template <typename SomeAttachment, typename Fn>
void each_attachment_field(SomeAttachment& attachment, const Fn& fn) {
  fn(attachment.type);
  fn(attachment.bytes);
  fn(attachment.key);
  fn(attachment.t);
  fn(attachment.h);
  fn(attachment.w);
}

template <typename Writer>
class MediaWriter final {
 public:
  explicit MediaWriter(Writer& out) : out_(out) {}

  void put(const std::vector<MediaSpan>& media) {
    out_.put(static_cast<uint64_t>(media.size()));
    for (const MediaSpan& span : media) {
      out_.put(span.begin);
      out_.put(span.end);
      const auto place = std::ranges::find(sent_, span.what);
      out_.put(static_cast<uint64_t>(place - sent_.begin()));
      if (place != sent_.end()) continue;
      sent_.push_back(span.what);
      each_attachment_field(*span.what, [this](const auto& field) { out_.put(field); });
    }
  }

 private:
  Writer& out_;
  std::vector<std::shared_ptr<const Attachment>> sent_;
};

template <typename Reader>
class MediaReader final {
 public:
  explicit MediaReader(Reader& in) : in_(in) {}

  /// False where the bytes name an attachment that is not there, or spans that are none of so many tokens.
  [[nodiscard]] bool get(std::vector<MediaSpan>& media, int64_t num_tokens) {
    media.resize(in_.count(3 * sizeof(uint64_t)));
    for (MediaSpan& span : media) {
      in_.get(span.begin);
      in_.get(span.end);
      uint64_t number = 0;
      in_.get(number);
      if (number > known_.size()) return false;
      if (number == known_.size()) {
        Attachment what;
        each_attachment_field(what, [this](auto& field) { in_.get(field); });
        known_.push_back(std::make_shared<Attachment>(std::move(what)));
      }
      span.what = known_[number];
    }
    return problem_of(media, num_tokens).empty();
  }

 private:
  Reader& in_;
  std::vector<std::shared_ptr<const Attachment>> known_;
};

}  // namespace slime
