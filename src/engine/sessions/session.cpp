#include "engine/sessions/session.h"

#include <algorithm>
#include <utility>

#include "engine/http/generate_request.h"

namespace slime::engine {
namespace {

/// Of a message in the tree, with what holds it.
constexpr int64_t kNodeBytes = sizeof(TurnHistory::Node) + 3 * sizeof(void*);

ServedModel limited(ServedModel model, const SessionOptions& options) {
  model.sampling_defaults = options.sampling_defaults;
  if (options.chat != nullptr) model.chat = options.chat;
  if (options.max_context_tokens > 0)
    model.context_length = std::min(model.context_length, options.max_context_tokens);
  return model;
}

}  // namespace

Session::Session(std::string name, SessionOptions options, const ServedModel& model,
                 const std::vector<std::string>& end_marks, std::atomic<int64_t>& all_bytes)
    : name_(std::move(name)),
      options_(std::move(options)),
      model_(limited(model, options_)),
      end_marks_(end_marks),
      rid_prefix_("session-" + make_rid() + "-"),
      all_bytes_(all_bytes),
      last_used_(std::chrono::steady_clock::now()) {}

Session::~Session() { all_bytes_ -= num_bytes_; }

void Session::count_bytes(int64_t more) {
  num_bytes_ += more;
  all_bytes_ += more;
}

bool Session::enter() {
  ++num_running_;
  if (!is_closed_) return true;
  --num_running_;
  return false;
}

void Session::leave(SessionTime now) {
  {
    const std::lock_guard lock(mutex_);
    last_used_ = now;
  }
  --num_running_;
}

SessionTime Session::last_used() const {
  const std::lock_guard lock(mutex_);
  return last_used_;
}

bool Session::take_turn() {
  const std::lock_guard lock(mutex_);
  if (options_.max_turns > 0 && num_taken_ >= options_.max_turns) return false;
  ++num_taken_;
  return true;
}

std::optional<Session::Recognised> Session::find(const json::array& messages, const TextKey& offer,
                                                 bool with_messages) const {
  const std::lock_guard lock(mutex_);
  std::optional<TurnHistory::Found> found = history_.find(messages, offer);
  if (!found) return std::nullopt;
  const SessionTurn& turn = *found->node->turn;
  Recognised recognised{.found = *std::move(found),
                        .tokens = TurnTree::tokens_of(turn),
                        .last_output = turn.output.back(),
                        .end_mark = turn.end_mark,
                        .messages = {}};
  if (with_messages) {
    for (const auto& [each, unit] : recognised.found.turns)
      recognised.messages.push_back(each->message);
  }
  return recognised;
}

Session::Record Session::record(SessionTurn turn, const Said& said,
                                const std::optional<TurnHistory::Found>& found) {
  const std::lock_guard lock(mutex_);
  Record record;
  record.turn = &tree_.add(std::move(turn), found ? found->node->turn : nullptr);
  count_bytes(static_cast<int64_t>(record.turn->num_bytes()));
  if (said.messages.empty()) return record;
  const auto before = static_cast<int64_t>(history_.num_nodes());
  record.node = &history_.record(*record.turn, said.messages, said.offer, found,
                                 record.turn->message, said.also);
  count_bytes((static_cast<int64_t>(history_.num_nodes()) - before) * kNodeBytes);
  return record;
}

void Session::forget(const Record& record) {
  const std::lock_guard lock(mutex_);
  if (record.node != nullptr && !record.node->children.empty()) return;
  const auto bytes = static_cast<int64_t>(record.turn->num_bytes());
  const auto num_tokens = static_cast<int64_t>(record.turn->output.size());
  if (!tree_.forget(*record.turn)) return;
  if (record.node != nullptr) history_.forget(*record.node);
  count_bytes(static_cast<int64_t>(record.turn->num_bytes()) - bytes);
  lose(num_tokens);
}

void Session::set_refused_behind(SessionTurn* turn) {
  const std::lock_guard lock(mutex_);
  refused_behind_ = turn;
}

int64_t Session::num_turns() const {
  int64_t count = 0;
  read_turns([&](const SessionTurn&, bool) { ++count; });
  return count;
}

}  // namespace slime::engine
