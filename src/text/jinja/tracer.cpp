#include "text/jinja/tracer.h"

#include <algorithm>

namespace slime::text::jinja {

void Tracer::wrote(std::size_t begin, std::size_t size) {
  if (size == 0) return;
  std::vector<Trace::Piece>& pieces = trace_->pieces;
  if (pieces.empty() || pieces.back().subject != subject_)
    pieces.push_back({begin, begin, subject_});
  pieces.back().end += size;
}

void Tracer::generated(std::size_t begin, std::size_t end) {
  trace_->generations.push_back({begin, end, subject_});
}

bool Tracer::begin(const Value& value) {
  if (trace_ == nullptr) return false;
  if (const Sequence* tuple = value.if_sequence();
      tuple != nullptr && tuple->kind == SequenceKind::kTuple) {
    return std::ranges::any_of(tuple->items, [this](const Value& item) {
      return item.if_dict() != nullptr && begin(item);
    });
  }
  const Dict* dict = value.if_dict();
  const auto found = std::ranges::find(trace_->subjects, dict);
  if (dict == nullptr || found == trace_->subjects.end()) return false;
  subject_ = static_cast<int>(found - trace_->subjects.begin());
  may_begin_ = false;
  return true;
}

Tracer::Turn::Turn(Tracer& tracer, const Value& item)
    : tracer_(tracer), outer_(tracer.subject_), outer_may_begin_(tracer.may_begin_) {
  const bool has_begun = tracer_.begin(item);
  tracer_.may_begin_ = tracer_.is_on() && !has_begun && outer_ == Trace::kNone;
}

Tracer::Turn::~Turn() {
  tracer_.subject_ = outer_;
  tracer_.may_begin_ = outer_may_begin_;
}

}  // namespace slime::text::jinja
