#pragma once

/// Source of a run's prompts: gives them out as groups of pending samples, and takes unfinished groups back.
///
/// The loop takes groups at the beginning of a step and adds those that wait for a later one
/// (partial rollout, surplus of over-sampling). Group ordinals count prompts given out, sample
/// ordinals count samples; neither ever restarts, so both name the same thing after a restart
/// (spec 18.3, 18.4).
///
/// Unlike the original, groups that waited or were in flight when a checkpoint was written come
/// back after it.

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "buffer/dataset.h"
#include "buffer/prompt_stream.h"
#include "buffer/prompt_supply.h"
#include "core/sample.h"

namespace slime::buffer {

/// Words in quotes are the flags that set a field.
struct DataSourceConfig {
  int64_t samples_per_prompt = 1;  // "--n-samples-per-prompt"
  bool shuffle = false;            // "--rollout-shuffle": a new order each epoch
  int64_t seed = 42;               // "--rollout-seed"
};

/// A choice among the groups that wait, by their places.
struct WaitingChoice {
  std::vector<std::size_t> taken;  // given out now, in this order
  std::vector<std::size_t> left;   // go on waiting; those in neither are left out for good
};

/// Chooses at most `count` of those that wait. It throws what keeps it from choosing.
using ChooseWaitingFn =
    std::function<WaitingChoice(const std::deque<Group>& waiting, int64_t count)>;

/// Used by one thread at a time. One class because what is given out next, and what may come again after a
/// restart, follow from the same counters, wherever prompts come from.
class DataSource {
 public:
  /// Without a data set (nullptr) groups have empty samples: the user's own rollout fills them.
  /// `dataset` outlives the source.
  DataSource(const Dataset* dataset, DataSourceConfig config);

  /// Prompts of a stream, in its order; the configuration must not shuffle. `stream` outlives the
  /// source.
  DataSource(PromptStream& stream, DataSourceConfig config);

  /// Prompts that `supply` gives out, in its order; the configuration must not shuffle. Groups that
  /// wait are with it, and waiting() mirrors them: it says when they come again. `supply` outlives the
  /// source.
  DataSource(PromptSupply& supply, DataSourceConfig config);

  /// The next `count` groups: those that wait first, oldest first, then prompts of the data set. At
  /// the end of an epoch the next one begins, at most once per call: a call for more than two
  /// epochs returns fewer groups.
  std::vector<Group> take(int64_t count);

  /// The same where `choose` says which of those that wait come first, instead of the oldest.
  /// `left_out`: those that are to be given out no more. Throws ConfigError for a choice of groups
  /// that are not there, of one twice, or of more than `count`.
  std::vector<Group> take(int64_t count, const ChooseWaitingFn& choose,
                          std::vector<Group>& left_out);

  /// Groups that are to be given out again, before any new prompt. Each has samples_per_prompt
  /// samples.
  void add(std::vector<Group> groups);
  /// Whether it has so many.
  bool may_wait(const Group& group) const;

  /// These groups, which wait, are replays: they are scored and trained as they are.
  void add_replays(const std::set<int64_t>& ordinals) {
    replays_.insert(ordinals.begin(), ordinals.end());
  }
  /// Whether this group is a replay: also one that a supply gave out with samples that had all ended.
  bool gave_finished(int64_t ordinal) const;

  /// Numbers a group that somebody else made, of at most samples_per_prompt samples, as if it had been
  /// taken here: group and samples get their ordinals. Parts of one sample have equal index_in_group.
  void adopt(Group& group);

  /// The state for a checkpoint, as JSON: counters, the groups that wait as they are, and where the
  /// groups `in_flight` came from (ordinals without a final outcome, Ledger::in_flight): after
  /// restore() those wait again, from their prompts. Forgets all others, so call it with each
  /// checkpoint.
  json::object save(const std::set<int64_t>& in_flight);

  /// Continues where `state` was saved. Returns remarks for the user, such as a data set that has
  /// changed since. Throws ConfigError that starts with `where` when the state is damaged or does
  /// not fit the configuration.
  std::vector<std::string> restore(const json::object& state, std::string_view where);

  int64_t epoch() const { return epoch_; }
  /// Prompts of this epoch that were given out.
  int64_t offset() const { return offset_; }
  /// Prompts of a whole epoch; of a stream, from when one has been read to its end.
  std::optional<int64_t> prompts_per_epoch() const;
  int64_t next_group() const { return next_group_; }
  int64_t next_sample() const { return next_sample_; }
  int64_t num_waiting() const { return static_cast<int64_t>(waiting_.size()); }
  const std::deque<Group>& waiting() const { return waiting_; }

 private:
  /// What a group is made of, so that it can be made again.
  struct Origin {
    int64_t row = -1;  // of the data set, -1 without one
    int64_t first_sample = 0;
  };

  std::vector<Group> fill(int64_t count, std::vector<Group> groups);
  void begin_epoch(int64_t epoch);
  void take_rows(int64_t count, std::vector<Group>& groups);
  Group make_group(int64_t ordinal, const Origin& origin, std::optional<Prompt> prompt = {}) const;
  void take_streamed(int64_t count, std::vector<Group>& groups);
  std::vector<Group> take_supplied(int64_t count);
  std::map<int64_t, Origin> origins_from_json(const json::object& state,
                                              std::string_view where) const;
  /// `read`: of a stream, the rows that the run had read, as they are now.
  std::vector<std::string> changes_since(const json::object& state, std::string_view where,
                                         const DataFingerprint& read) const;
  std::optional<std::string> change_of_data(const json::object& state, std::string_view where,
                                            const DataFingerprint& read) const;
  int64_t num_rows() const { return dataset_ != nullptr ? dataset_->size() : 0; }
  uint32_t fingerprint() const { return dataset_ != nullptr ? dataset_->fingerprint() : 0; }

  const Dataset* const dataset_;
  PromptStream* const stream_ = nullptr;
  PromptSupply* const supply_ = nullptr;
  const DataSourceConfig config_;
  std::vector<int64_t> order_;  // of this epoch: position -> row
  int64_t epoch_ = 0;
  int64_t offset_ = 0;
  DataFingerprint streamed_;                    // of a stream: what was read of this epoch
  std::optional<int64_t> streamed_epoch_rows_;  // of a stream: prompts of the epoch before
  int64_t next_group_ = 0;
  int64_t next_sample_ = 0;
  std::deque<Group> waiting_;
  std::map<int64_t, Origin> taken_;  // by group ordinal: all that may come back
  std::map<int64_t, Group> lent_;    // the same of a supply's, as they were taken
  std::set<int64_t> replays_;
};

/// Puts groups that are begun and not final into a saved state, before those that wait: they are
/// given out again first, each sample with the tokens and the score that it has.
void add_open_groups(json::object& state, const std::vector<Group>& open);

}  // namespace slime::buffer
