#include "buffer/data_source.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "buffer/python_random.h"
#include "core/error.h"
#include "core/field_reader.h"

namespace slime::buffer {
namespace {

constexpr int64_t kStateVersion = 1;

/// Of what this program wrote: fields are there, and the first that is not as it should be is
/// thrown.
FieldReader reader_of(const json::object& object, std::string_view where) {
  return FieldReader(object, fmt::format("{}: ", where)).required();
}

/// Parts that a function made of one sample count as that one.
int64_t num_members(const Group& group) {
  std::set<int64_t> ordinals;
  for (const Sample& sample : group.samples) ordinals.insert(sample.ordinal);
  return static_cast<int64_t>(ordinals.size());
}

int64_t counter(const FieldReader& fields, std::string_view key) { return *fields.integer(key, 0); }

int64_t counter(const json::object& state, std::string_view key, std::string_view where) {
  return counter(reader_of(state, where), key);
}

json::object to_json(const Group& group) {
  json::array samples;
  for (const Sample& sample : group.samples) samples.push_back(slime::to_json(sample));
  json::object object{{"group", group.ordinal}, {"samples", std::move(samples)}};
  if (group.begun_with) object["begun_with"] = *group.begun_with;
  return object;
}

/// Rows that a stream had read of its epoch; 0 in a state from before they were counted.
int64_t rows_streamed(const json::object& state, std::string_view where) {
  const auto streamed = FieldReader(state, fmt::format("{}: ", where)).fields("streamed");
  return streamed ? counter(streamed->required(), "rows") : 0;
}

Group group_from_json(const FieldReader& fields, std::string_view where) {
  Group group;
  group.ordinal = counter(fields.required(), "group");
  if (fields.has("begun_with")) group.begun_with = counter(fields.required(), "begun_with");
  for (const FieldReader& sample : fields.required().list("samples"))
    group.samples.push_back(sample_from_json(sample.raw(), where));
  return group;
}

}  // namespace

DataSource::DataSource(const Dataset* dataset, DataSourceConfig config)
    : dataset_(dataset), config_(config) {
  if (config_.samples_per_prompt < 1) {
    throw ConfigError(
        fmt::format("--n-samples-per-prompt {}: should be at least 1", config_.samples_per_prompt));
  }
  begin_epoch(0);
}

DataSource::DataSource(PromptStream& stream, DataSourceConfig config)
    : dataset_(nullptr), stream_(&stream), config_(config) {
  check(!config_.shuffle, "a stream has the order of its files");
  check(config_.samples_per_prompt >= 1, "a prompt has at least one sample");
}

DataSource::DataSource(PromptSupply& supply, DataSourceConfig config)
    : dataset_(nullptr), supply_(&supply), config_(config) {
  check(!config_.shuffle, "a supply has an order of its own");
  check(config_.samples_per_prompt >= 1, "a prompt has at least one sample");
}

void DataSource::begin_epoch(int64_t epoch) {
  epoch_ = epoch;
  if (dataset_ == nullptr) return;
  if (config_.shuffle) {
    order_ = epoch_order(dataset_->size(), config_.seed, epoch);
  } else if (order_.empty()) {
    order_.resize(static_cast<std::size_t>(dataset_->size()));
    std::iota(order_.begin(), order_.end(), 0);
  }
}

Group DataSource::make_group(int64_t ordinal, const Origin& origin,
                             std::optional<Prompt> known) const {
  Sample sample;
  sample.group = ordinal;
  if (origin.row >= 0) {
    Prompt prompt = known ? std::move(*known) : dataset_->prompt(origin.row);
    sample.prompt_length = static_cast<int64_t>(prompt.tokens.size());
    sample.tokens = std::move(prompt.tokens);
    sample.media = std::move(prompt.media);
    sample.prompt = std::move(prompt.text);
    const bool is_rendered =
        stream_ != nullptr ? stream_->applies_template() : dataset_->applies_template();
    // Users' functions read a list of messages as one.
    if (!is_rendered && prompt.source.is_array())
      sample.user_fields["prompt"] = std::move(prompt.source);
    sample.label = std::move(prompt.label);
    sample.metadata = std::move(prompt.metadata);
  }
  Group group{ordinal,
              std::vector<Sample>(static_cast<std::size_t>(config_.samples_per_prompt), sample)};
  for (std::size_t i = 0; i < group.samples.size(); ++i) {
    group.samples[i].index_in_group = static_cast<int64_t>(i);
    group.samples[i].ordinal = origin.first_sample + static_cast<int64_t>(i);
  }
  return group;
}

void DataSource::take_rows(int64_t count, std::vector<Group>& groups) {
  const auto size = dataset_ != nullptr ? static_cast<int64_t>(order_.size())
                                        : std::numeric_limits<int64_t>::max();
  for (; count > 0 && offset_ < size; --count) {
    const Origin origin{dataset_ != nullptr ? order_[static_cast<std::size_t>(offset_)] : -1,
                        next_sample_};
    groups.push_back(make_group(next_group_, origin));
    taken_.emplace(next_group_, origin);
    ++next_group_;
    next_sample_ += config_.samples_per_prompt;
    if (dataset_ != nullptr) ++offset_;
  }
}

void DataSource::take_streamed(int64_t count, std::vector<Group>& groups) {
  for (; count > 0; --count) {
    StreamedPrompt next = stream_->next();
    const Origin origin{next.row, next_sample_};
    groups.push_back(make_group(next_group_, origin, std::move(next.prompt)));
    taken_.emplace(next_group_, origin);
    ++next_group_;
    next_sample_ += config_.samples_per_prompt;
    if (next.epoch != epoch_) streamed_epoch_rows_ = offset_;
    epoch_ = next.epoch;
    offset_ = next.row + 1;
    streamed_ = next.read;
  }
}

std::vector<Group> DataSource::take_supplied(int64_t count) {
  if (count == 0) return {};
  std::vector<Group> groups = supply_->take(count);
  for (Group& group : groups) {
    const auto waited = std::ranges::find(waiting_, group.ordinal, &Group::ordinal);
    if (waited == waiting_.end()) {
      adopt(group);
    } else {
      waiting_.erase(waited);
    }
    lent_.insert_or_assign(group.ordinal, group);
  }
  return groups;
}

void DataSource::adopt(Group& group) {
  group.ordinal = next_group_++;
  for (Sample& sample : group.samples) {
    check(sample.index_in_group >= 0 && sample.index_in_group < config_.samples_per_prompt,
          "a group has at most n-samples-per-prompt samples");
    sample.group = group.ordinal;
    sample.ordinal = next_sample_ + sample.index_in_group;
  }
  next_sample_ += config_.samples_per_prompt;
}

std::optional<int64_t> DataSource::prompts_per_epoch() const {
  if (stream_ != nullptr) return streamed_epoch_rows_;
  return dataset_ != nullptr ? std::optional(dataset_->size()) : std::nullopt;
}

std::vector<Group> DataSource::take(int64_t count) {
  check(count >= 0, "groups are taken in non-negative numbers");
  if (supply_ != nullptr) return take_supplied(count);
  std::vector<Group> groups;
  while (!waiting_.empty() && static_cast<int64_t>(groups.size()) < count) {
    groups.push_back(std::move(waiting_.front()));
    waiting_.pop_front();
  }
  return fill(count, std::move(groups));
}

std::vector<Group> DataSource::take(int64_t count, const ChooseWaitingFn& choose,
                                    std::vector<Group>& left_out) {
  if (waiting_.empty() || count <= 0 || supply_ != nullptr) return take(count);
  const WaitingChoice choice = choose(waiting_, count);
  if (static_cast<int64_t>(choice.taken.size()) > count) {
    throw ConfigError(fmt::format("{} groups were chosen of those that wait, where {} are wanted",
                                  choice.taken.size(), count));
  }
  std::vector<bool> is_chosen(waiting_.size(), false);
  for (const auto* places : {&choice.taken, &choice.left}) {
    for (const std::size_t place : *places) {
      if (place >= waiting_.size() || is_chosen[place])
        throw ConfigError("a group was chosen twice of those that wait, or one that is not there");
      is_chosen[place] = true;
    }
  }
  std::vector<Group> groups;
  std::deque<Group> left;
  for (const std::size_t place : choice.taken) groups.push_back(std::move(waiting_[place]));
  for (const std::size_t place : choice.left) left.push_back(std::move(waiting_[place]));
  for (std::size_t place = 0; place < is_chosen.size(); ++place) {
    if (!is_chosen[place]) left_out.push_back(std::move(waiting_[place]));
  }
  waiting_ = std::move(left);
  return fill(count, std::move(groups));
}

/// New prompts behind `groups`, until there are `count`.
std::vector<Group> DataSource::fill(int64_t count, std::vector<Group> groups) {
  if (stream_ != nullptr) {
    take_streamed(count - static_cast<int64_t>(groups.size()), groups);
    return groups;
  }
  take_rows(count - static_cast<int64_t>(groups.size()), groups);
  if (const int64_t missing = count - static_cast<int64_t>(groups.size()); missing > 0) {
    begin_epoch(epoch_ + 1);
    offset_ = 0;
    take_rows(missing, groups);
    // As in the original also when the epoch was shorter: the next call starts the one after.
    offset_ = missing;
  }
  return groups;
}

void DataSource::add(std::vector<Group> groups) {
  if (supply_ != nullptr) supply_->give_back(groups);
  for (Group& group : groups) {
    check(may_wait(group), "a group that waits has n-samples-per-prompt samples");
    waiting_.push_back(std::move(group));
  }
}

bool DataSource::gave_finished(int64_t ordinal) const {
  if (replays_.contains(ordinal)) return true;
  const auto lent = lent_.find(ordinal);
  return lent != lent_.end() && std::ranges::all_of(lent->second.samples, [](const Sample& sample) {
           return sample.status == Status::kCompleted || sample.status == Status::kTruncated;
         });
}

bool DataSource::may_wait(const Group& group) const {
  return num_members(group) == config_.samples_per_prompt;
}

json::object DataSource::save(const std::set<int64_t>& in_flight) {
  std::set<int64_t> kept = in_flight;
  json::array waiting;
  for (const Group& group : waiting_) {
    kept.insert(group.ordinal);
    waiting.push_back(to_json(group));
  }
  for (const auto& [ordinal, group] : lent_) {
    const bool waits = std::ranges::find(waiting_, ordinal, &Group::ordinal) != waiting_.end();
    if (in_flight.contains(ordinal) && !waits) waiting.push_back(to_json(group));
  }
  std::erase_if(lent_, [&](const auto& entry) { return !kept.contains(entry.first); });
  std::erase_if(taken_, [&](const auto& entry) { return !kept.contains(entry.first); });
  json::array origins;
  for (const auto& [ordinal, origin] : taken_) {
    origins.push_back(json::array{ordinal, origin.row, origin.first_sample});
  }
  json::object state;
  state["version"] = kStateVersion;
  state["epoch"] = epoch_;
  state["offset"] = offset_;
  state["next_group"] = next_group_;
  state["next_sample"] = next_sample_;
  state["samples_per_prompt"] = config_.samples_per_prompt;
  state["seed"] = config_.seed;
  state["shuffle"] = config_.shuffle;
  state["num_rows"] = num_rows();
  state["fingerprint"] = fingerprint();
  if (stream_ != nullptr)
    state["streamed"] = {{"rows", streamed_.num_rows}, {"fingerprint", streamed_.checksum}};
  state["origins"] = std::move(origins);
  state["waiting"] = std::move(waiting);
  return state;
}

void add_open_groups(json::object& state, const std::vector<Group>& open) {
  json::array groups;
  for (const Group& group : open) groups.push_back(to_json(group));
  json::array& waiting = state.at("waiting").as_array();
  for (json::value& group : waiting) groups.push_back(std::move(group));
  waiting = std::move(groups);
}

std::vector<std::string> DataSource::restore(const json::object& state, std::string_view where) {
  if (const int64_t version = counter(state, "version", where); version != kStateVersion) {
    throw ConfigError(fmt::format("{}: data source state of version {}, this program reads {}",
                                  where, version, kStateVersion));
  }
  std::deque<Group> waiting;
  std::set<int64_t> waiting_ordinals;
  for (const FieldReader& group : reader_of(state, where).list("waiting")) {
    Group read = group_from_json(group, where);
    // One that is under way stands before the form in which it was lent.
    if (waiting_ordinals.insert(read.ordinal).second) waiting.push_back(std::move(read));
  }
  std::map<int64_t, Origin> taken = origins_from_json(state, where);
  std::map<int64_t, Origin> in_flight;  // when the state was saved
  std::set<int64_t> rows_in_flight;
  for (const auto& [ordinal, origin] : taken) {
    if (waiting_ordinals.contains(ordinal)) continue;
    in_flight.emplace(ordinal, origin);
    if (origin.row >= 0) rows_in_flight.insert(origin.row);
  }
  const int64_t group_size = counter(state, "samples_per_prompt", where);
  if (group_size != config_.samples_per_prompt && !(waiting.empty() && in_flight.empty())) {
    throw ConfigError(fmt::format(
        "{}: {} groups of {} samples wait; --n-samples-per-prompt cannot change to {} "
        "before they are used",
        where, waiting.size() + in_flight.size(), group_size, config_.samples_per_prompt));
  }
  for (const Group& group : waiting) {
    if (num_members(group) != config_.samples_per_prompt) {
      throw ConfigError(fmt::format("{}: waiting group {} has {} samples", where, group.ordinal,
                                    num_members(group)));
    }
  }
  begin_epoch(counter(state, "epoch", where));
  offset_ = counter(state, "offset", where);
  PromptStream::Lookback lookback;
  if (stream_ != nullptr) {
    lookback = stream_->resume(epoch_, offset_, rows_streamed(state, where), rows_in_flight);
    // Of the files as they are now: what the next checkpoint is compared with.
    streamed_ = lookback.read;
    streamed_epoch_rows_.reset();
  }
  std::vector<std::string> remarks = changes_since(state, where, lookback.read);
  next_group_ = counter(state, "next_group", where);
  next_sample_ = counter(state, "next_sample", where);
  waiting_.clear();
  for (const auto& [ordinal, origin] : in_flight) {
    const auto known = lookback.prompts.find(origin.row);
    waiting_.push_back(
        make_group(ordinal, origin,
                   known == lookback.prompts.end() ? std::nullopt : std::optional(known->second)));
  }
  std::move(waiting.begin(), waiting.end(), std::back_inserter(waiting_));
  taken_ = std::move(taken);
  return remarks;
}

std::map<int64_t, DataSource::Origin> DataSource::origins_from_json(const json::object& state,
                                                                    std::string_view where) const {
  std::map<int64_t, Origin> origins;
  const FieldReader fields = reader_of(state, where);
  for (const json::value& entry : *fields.array("origins")) {
    const json::array* triple = entry.if_array();
    const bool is_triple =
        triple != nullptr && triple->size() == 3 &&
        std::ranges::all_of(*triple, [](const json::value& number) { return number.is_int64(); });
    fields.expect(is_triple, "origins", "must be a list of [group, row, sample]");
    const int64_t ordinal = (*triple)[0].get_int64();
    const Origin origin{(*triple)[1].get_int64(), (*triple)[2].get_int64()};
    if (stream_ == nullptr && origin.row >= num_rows()) {
      throw ConfigError(
          fmt::format("{}: group {} was made of row {}, but the prompt data has {} rows now", where,
                      ordinal, origin.row, num_rows()));
    }
    origins.emplace(ordinal, origin);
  }
  return origins;
}

std::optional<std::string> DataSource::change_of_data(const json::object& state,
                                                      std::string_view where,
                                                      const DataFingerprint& read) const {
  constexpr std::string_view kEffect =
      "the order goes on from the same position, but rows may repeat or be missed in this epoch";
  if (stream_ != nullptr) {
    const int64_t rows_then = rows_streamed(state, where);
    if (rows_then == 0) return std::nullopt;
    const json::object& streamed = state.at("streamed").get_object();
    if (read.num_rows == rows_then &&
        counter(streamed, "fingerprint", where) == int64_t{read.checksum})
      return std::nullopt;
    return fmt::format(
        "{}: the prompt data changed since the checkpoint (the first {} rows are others than those "
        "that were read, or in another order); {}",
        where, rows_then, kEffect);
  }
  const int64_t rows_then = counter(state, "num_rows", where);
  if (rows_then == num_rows() && counter(state, "fingerprint", where) == int64_t{fingerprint()})
    return std::nullopt;
  return fmt::format(
      "{}: the prompt data changed since the checkpoint ({} rows then, {} now, or in another "
      "order); {}",
      where, rows_then, num_rows(), kEffect);
}

std::vector<std::string> DataSource::changes_since(const json::object& state,
                                                   std::string_view where,
                                                   const DataFingerprint& read) const {
  std::vector<std::string> remarks;
  if (auto change = change_of_data(state, where, read)) remarks.push_back(std::move(*change));
  const json::value* seed = state.if_contains("seed");
  const json::value* shuffle = state.if_contains("shuffle");
  if (seed == nullptr || *seed != json::value(config_.seed) || shuffle == nullptr ||
      *shuffle != json::value(config_.shuffle)) {
    remarks.push_back(
        fmt::format("{}: --rollout-seed or --rollout-shuffle changed since the checkpoint; rows "
                    "may repeat or be missed "
                    "in this epoch",
                    where));
  }
  return remarks;
}

}  // namespace slime::buffer
