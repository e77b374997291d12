// Updates as columns: a step of a full batch is one frame of hundreds of them, most with one token.
//
//   count
//   UpdateHead: what every update has, and the lengths of its parts             one per update
//   ids, log-probs, version runs, top-p counts, top-p ids, experts, free log-probs,
//   top-p log-probs                                                             of all, end to end
//   finish, scores and drafts of those that have them, update by update

#include <array>
#include <bit>
#include <cmath>

#include "engine/remote/frames.h"
#include "net/binary.h"

namespace slime::engine {
namespace {

using net::BinaryReader;
using net::BinaryWriter;
using net::FrameError;

constexpr uint8_t kHasFinish = 1;
constexpr uint8_t kHasScores = 2;
constexpr uint8_t kHasDrafts = 4;

struct UpdateHead {
  uint64_t number = 0;
  int64_t prompt_tokens = 0;
  int64_t cached_tokens = 0;
  int64_t num_retractions = 0;
  std::array<uint64_t, 2> seconds = {};  // queue, total: the bits of doubles
  std::array<uint32_t, 8> lengths = {};
  uint32_t num_constrained = 0;
  uint32_t extras = 0;
};
static_assert(sizeof(UpdateHead) == 88);

uint64_t bits_of(double number) { return std::bit_cast<uint64_t>(number); }

bool has_scores(const GenerateUpdate& update) {
  return !update.output_top.empty() || !update.output_asked.empty() ||
         !update.input_log_probs.empty() || !update.input_top.empty() ||
         !update.input_asked.empty() || update.scored_by.has_value();
}

void put_finish(BinaryWriter& out, const FinishReason& finish) {
  out.put(static_cast<uint8_t>(finish.kind));
  out.put(static_cast<uint8_t>(finish.cause));
  out.put(static_cast<uint8_t>(finish.matched.index()));
  if (const auto* id = std::get_if<TokenId>(&finish.matched)) out.put(*id);
  if (const auto* text = std::get_if<std::string>(&finish.matched)) out.put(*text);
  out.put(finish.message);
}

FinishReason get_finish(BinaryReader& in) {
  FinishReason finish;
  finish.kind = static_cast<FinishReason::Kind>(
      in.below(static_cast<uint8_t>(FinishReason::Kind::kAbort) + 1));
  finish.cause = static_cast<FinishReason::Cause>(
      in.below(static_cast<uint8_t>(FinishReason::Cause::kShuttingDown) + 1));
  switch (in.below(std::variant_size_v<decltype(finish.matched)>)) {
    case 1:
      in.get(finish.matched.emplace<TokenId>());
      break;
    case 2:
      in.get(finish.matched.emplace<std::string>());
      break;
    default:
      break;
  }
  in.get(finish.message);
  return finish;
}

void put_top(BinaryWriter& out, const TopLogProbs& top) {
  out.put(static_cast<uint64_t>(top.size()));
  for (const auto& position : top) {
    out.put(static_cast<uint64_t>(position.size()));
    for (const auto& [log_prob, id] : position) {
      out.put(log_prob);
      out.put(id);
    }
  }
}

TopLogProbs get_top(BinaryReader& in) {
  TopLogProbs top(in.count(sizeof(uint64_t)));
  for (auto& position : top) {
    position.resize(in.count(sizeof(float) + sizeof(TokenId)));
    for (auto& [log_prob, id] : position) {
      in.get(log_prob);
      in.get(id);
    }
  }
  return top;
}

void put_scores(BinaryWriter& out, const GenerateUpdate& update) {
  put_top(out, update.output_top);
  put_top(out, update.output_asked);
  out.put(static_cast<uint64_t>(update.input_log_probs.size()));
  for (const std::optional<float>& log_prob : update.input_log_probs) {
    out.put(log_prob.has_value());
    out.put(log_prob.value_or(0));
  }
  put_top(out, update.input_top);
  put_top(out, update.input_asked);
  out.put(update.scored_by.has_value());
  out.put(update.scored_by.value_or(0));
}

void get_scores(BinaryReader& in, GenerateUpdate& update) {
  update.output_top = get_top(in);
  update.output_asked = get_top(in);
  update.input_log_probs.resize(in.count(1 + sizeof(float)));
  for (std::optional<float>& log_prob : update.input_log_probs) {
    bool is_there = false;
    float number = 0;
    in.get(is_there);
    in.get(number);
    if (is_there) {
      log_prob = number;
    } else if (number != 0 || std::signbit(number)) {
      throw FrameError("a log-prob that is not there has a value");
    }
  }
  update.input_top = get_top(in);
  update.input_asked = get_top(in);
  bool is_told = false;
  WeightVersion version = 0;
  in.get(is_told);
  in.get(version);
  if (is_told) update.scored_by = version;
  if (!is_told && version != 0) throw FrameError("weights that scored nothing have a version");
  if (!has_scores(update)) throw FrameError("an update is said to have scores, and has none");
}

bool has_counts(const DraftCounts& drafts) { return drafts != DraftCounts{}; }

void put_drafts(BinaryWriter& out, const DraftCounts& drafts) {
  out.put(drafts.num_drafted);
  out.put(drafts.num_kept);
  out.put(drafts.num_steps);
  out.put(drafts.num_compared);
  out.put(drafts.num_redrawn);
}

DraftCounts get_drafts(BinaryReader& in) {
  DraftCounts drafts;
  in.get(drafts.num_drafted);
  in.get(drafts.num_kept);
  in.get(drafts.num_steps);
  in.get(drafts.num_compared);
  in.get(drafts.num_redrawn);
  if (!has_counts(drafts)) throw FrameError("an update is said to have drafts, and has none");
  if (drafts.num_kept < 0 || drafts.num_kept > drafts.num_drafted || drafts.num_steps < 0)
    throw FrameError("an update kept more drafts than it had");
  if (drafts.num_redrawn < 0 || drafts.num_redrawn > drafts.num_compared ||
      drafts.num_compared > drafts.num_drafted)
    throw FrameError("an update compared more drafts than it had, or redrew more than it compared");
  return drafts;
}

/// One column of all updates, end to end.
template <typename T>
void put_all(BinaryWriter& out, const RemoteUpdates& updates,
             std::vector<T> GenerateUpdate::*column) {
  for (const RemoteUpdate& told : updates) out.put_column(told.update.*column);
}

template <typename T>
void get_all(BinaryReader& in, const std::vector<UpdateHead>& heads, std::size_t index,
             RemoteUpdates& updates, std::vector<T> GenerateUpdate::*column) {
  for (std::size_t i = 0; i < heads.size(); ++i)
    in.get_column(updates[i].update.*column, heads[i].lengths[index]);
}

/// What the program relies on wherever it takes an update.
void check_lengths(const GenerateUpdate& update) {
  for (const TokenId id : update.output_ids)
    if (id < 0) throw FrameError("an update has a token below 0");
  const std::size_t count = update.output_ids.size();
  const auto fits = [count](std::size_t other) { return other == 0 || other == count; };
  if (!fits(update.output_log_probs.size()) || !fits(update.top_p_counts.size()) ||
      !fits(update.output_top.size()) || !fits(update.output_asked.size()) ||
      !fits(update.output_free_log_probs.size()))
    throw FrameError("an update has not one log-prob a token");
  if (update.num_constrained > static_cast<int64_t>(count))
    throw FrameError("a grammar has bound more tokens than an update has");
  uint64_t left = count;
  for (const VersionRun& run : update.versions) {
    if (run.num_tokens <= 0 || static_cast<uint64_t>(run.num_tokens) > left)
      throw FrameError("the versions of an update are of more tokens than it has");
    left -= static_cast<uint64_t>(run.num_tokens);
  }
  uint64_t ids = update.top_p_ids.size();
  for (const int64_t kept : update.top_p_counts) {
    if (kept < 0 || static_cast<uint64_t>(kept) > ids)
      throw FrameError("an update counts more top-p ids than it has");
    ids -= static_cast<uint64_t>(kept);
  }
  if (ids != 0) throw FrameError("an update has more top-p ids than it counts");
  if (!update.top_p_log_probs.empty() && update.top_p_log_probs.size() != update.top_p_ids.size())
    throw FrameError("an update has not one log-prob a top-p id");
}

}  // namespace

std::string to_frame(const RemoteUpdates& updates) {
  BinaryWriter out;
  out.put(static_cast<uint64_t>(updates.size()));
  for (const auto& [number, update] : updates) {
    const auto length = [](const auto& column) { return static_cast<uint32_t>(column.size()); };
    out.put(UpdateHead{
        .number = number,
        .prompt_tokens = update.prompt_tokens,
        .cached_tokens = update.cached_tokens,
        .num_retractions = update.num_retractions,
        .seconds = {bits_of(update.queue_seconds), bits_of(update.total_seconds)},
        .lengths = {length(update.output_ids), length(update.output_log_probs),
                    length(update.versions), length(update.top_p_counts), length(update.top_p_ids),
                    length(update.routed_experts), length(update.output_free_log_probs),
                    length(update.top_p_log_probs)},
        .num_constrained = static_cast<uint32_t>(update.num_constrained),
        .extras = (update.finish ? kHasFinish : 0U) | (has_scores(update) ? kHasScores : 0U) |
                  (has_counts(update.drafts) ? kHasDrafts : 0U)});
  }
  put_all(out, updates, &GenerateUpdate::output_ids);
  put_all(out, updates, &GenerateUpdate::output_log_probs);
  put_all(out, updates, &GenerateUpdate::versions);
  put_all(out, updates, &GenerateUpdate::top_p_counts);
  put_all(out, updates, &GenerateUpdate::top_p_ids);
  put_all(out, updates, &GenerateUpdate::routed_experts);
  put_all(out, updates, &GenerateUpdate::output_free_log_probs);
  put_all(out, updates, &GenerateUpdate::top_p_log_probs);
  for (const auto& [number, update] : updates) {
    if (update.finish) put_finish(out, *update.finish);
    if (has_scores(update)) put_scores(out, update);
    if (has_counts(update.drafts)) put_drafts(out, update.drafts);
  }
  return out.take();
}

RemoteUpdates remote_updates_from(std::string_view frame) {
  BinaryReader in(frame);
  std::vector<UpdateHead> heads;
  in.get(heads);
  RemoteUpdates updates(heads.size());
  for (std::size_t i = 0; i < heads.size(); ++i) {
    const UpdateHead& head = heads[i];
    updates[i].number = head.number;
    GenerateUpdate& update = updates[i].update;
    update.prompt_tokens = head.prompt_tokens;
    update.cached_tokens = head.cached_tokens;
    update.num_retractions = head.num_retractions;
    update.num_constrained = head.num_constrained;
    update.queue_seconds = std::bit_cast<double>(head.seconds[0]);
    update.total_seconds = std::bit_cast<double>(head.seconds[1]);
    if (head.extras > (kHasFinish | kHasScores | kHasDrafts))
      throw FrameError("an update has unknown extras");
  }
  get_all(in, heads, 0, updates, &GenerateUpdate::output_ids);
  get_all(in, heads, 1, updates, &GenerateUpdate::output_log_probs);
  get_all(in, heads, 2, updates, &GenerateUpdate::versions);
  get_all(in, heads, 3, updates, &GenerateUpdate::top_p_counts);
  get_all(in, heads, 4, updates, &GenerateUpdate::top_p_ids);
  get_all(in, heads, 5, updates, &GenerateUpdate::routed_experts);
  get_all(in, heads, 6, updates, &GenerateUpdate::output_free_log_probs);
  get_all(in, heads, 7, updates, &GenerateUpdate::top_p_log_probs);
  for (std::size_t i = 0; i < heads.size(); ++i) {
    GenerateUpdate& update = updates[i].update;
    if ((heads[i].extras & kHasFinish) != 0) update.finish = get_finish(in);
    if ((heads[i].extras & kHasScores) != 0) get_scores(in, update);
    if ((heads[i].extras & kHasDrafts) != 0) update.drafts = get_drafts(in);
    check_lengths(update);
  }
  in.end();
  return updates;
}

}  // namespace slime::engine
