#include "engine/http/fake_engine.h"

#include <fmt/format.h>

#include "core/json.h"

namespace slime::engine {

std::unique_ptr<text::Tokenizer> make_ascii_tokenizer() {
  json::object vocab;
  for (int code = 33; code < 127; ++code) vocab[std::string(1, static_cast<char>(code))] = code;
  vocab["\xc4\xa0"] = 32;  // how byte-level BPE spells a space
  const json::object byte_level{{"type", "ByteLevel"},
                                {"add_prefix_space", false},
                                {"trim_offsets", true},
                                {"use_regex", true}};
  const json::value tokenizer = {
      {"version", "1.0"},
      {"added_tokens", json::array{json::object{{"id", kEndId},
                                                {"content", "<|im_end|>"},
                                                {"single_word", false},
                                                {"lstrip", false},
                                                {"rstrip", false},
                                                {"normalized", false},
                                                {"special", true}}}},
      {"normalizer", nullptr},
      {"pre_tokenizer", byte_level},
      {"post_processor", nullptr},
      {"decoder", byte_level},
      {"model", {{"type", "BPE"}, {"vocab", vocab}, {"merges", json::array{}}}}};
  return text::Tokenizer::from_json(json_text(tokenizer), "");
}

FakeEngine::FakeEngine(std::string text)
    : text_(std::move(text)), thread_([this](std::stop_token stop) { run(stop); }) {}

FakeEngine::~FakeEngine() {
  thread_.request_stop();
  changed_.notify_all();
}

RequestHandle FakeEngine::submit(GenerateRequest request, OnUpdate on_update) {
  const std::lock_guard lock(mutex_);
  const auto handle = static_cast<RequestHandle>(++num_handles_);
  seen_.push_back(request);
  read([this, handle, request = std::move(request), on_update = std::move(on_update)] {
    admit({.handle = handle, .request = request, .on_update = on_update});
  });
  return handle;
}

void FakeEngine::admit(Running request) {
  const std::string rid = request.request.rid;
  if (!running_.contains(rid)) {
    running_.emplace(rid, std::move(request));
    return;
  }
  GenerateUpdate refused;
  refused.rid = rid;
  refused.finish = aborted(FinishReason::Cause::kBadRequest, "the rid is already running");
  refused_.emplace_back(std::move(request.on_update), std::move(refused));
}

void FakeEngine::read(std::function<void()> command) {
  unread_.push_back(std::move(command));
  if (!is_reading_) return;
  for (const auto& each : std::exchange(unread_, {})) each();
  changed_.notify_all();
}

void FakeEngine::set_is_reading(bool is_reading) {
  const std::lock_guard lock(mutex_);
  is_reading_ = is_reading;
  read([] {});
}

Expected<void> FakeEngine::abort_where(Matches matches) {
  const std::lock_guard lock(mutex_);
  read([this, matches = std::move(matches)] {
    for (auto& [rid, running] : running_) running.is_aborted |= matches(running);
  });
  return {};
}

Expected<void> FakeEngine::abort(RequestHandle request) {
  return abort_where([request](const Running& other) { return other.handle == request; });
}
Expected<void> FakeEngine::abort_prefix(const std::string& prefix) {
  return abort_where(
      [prefix](const Running& other) { return other.request.rid.starts_with(prefix); });
}
Expected<void> FakeEngine::abort_all() {
  return abort_where([](const Running&) { return true; });
}

Expected<void> FakeEngine::pause(PauseMode mode) {
  if (mode == PauseMode::kAbort) static_cast<void>(abort_all());
  const std::lock_guard lock(mutex_);
  is_paused_ = true;
  return {};
}

Expected<void> FakeEngine::resume() {
  const std::lock_guard lock(mutex_);
  is_paused_ = false;
  changed_.notify_all();
  return {};
}

Expected<bool> FakeEngine::flush_cache() {
  const std::lock_guard lock(mutex_);
  return running_.empty();
}

Expected<void> FakeEngine::update_weights(const WeightUpdate& update) {
  const auto* directory = std::get_if<FromDirectory>(&update.source);
  if (directory != nullptr && directory->path.filename() == "qwen2")
    return failure("another shape");
  if (update.running == RunningRequests::kAbort) static_cast<void>(abort_all());
  {
    const std::lock_guard lock(mutex_);
    version_ = update.version;
    updates_.push_back(update.version);
    is_paused_ |= update.stays_paused;
  }
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  return {};
}

Expected<WeightChecksums> FakeEngine::check_weights(WeightCheck check) {
  if (check == WeightCheck::kCompare) return failure("1 of 2 tensors differ: a");
  const auto version = static_cast<uint64_t>(weight_version());
  return WeightChecksums{{"a", version}, {"b", 255}};
}

std::vector<WeightVersion> FakeEngine::update_versions() const {
  const std::lock_guard lock(mutex_);
  return updates_;
}

void FakeEngine::set_seconds_without_progress(double seconds) {
  const std::lock_guard lock(mutex_);
  seconds_without_progress_ = seconds;
}

WeightVersion FakeEngine::weight_version() const {
  const std::lock_guard lock(mutex_);
  return version_;
}

Expected<EngineLoad> FakeEngine::load() const {
  const std::lock_guard lock(mutex_);
  return EngineLoad{.num_running = static_cast<int64_t>(running_.size()),
                    .num_kv_tokens = 1000,
                    .steps_done = steps_,
                    .seconds_without_progress = seconds_without_progress_,
                    .is_paused = is_paused_};
}

std::vector<GenerateRequest> FakeEngine::requests() const {
  const std::lock_guard lock(mutex_);
  return seen_;
}

GenerateUpdate FakeEngine::next_update(Running& running) const {
  const GenerateRequest& request = running.request;
  const SamplingParams& sampling = request.sampling;
  GenerateUpdate update;
  update.rid = request.rid;
  update.prompt_tokens = static_cast<int64_t>(request.input_ids.size());
  if (running.is_aborted) {
    update.finish = aborted(FinishReason::Cause::kRequested, "aborted");
    return update;
  }
  if (request.return_logprob && request.logprob_start_len >= 0 && running.num_made == 0) {
    for (auto i = request.logprob_start_len; i < update.prompt_tokens; ++i) {
      update.input_log_probs.push_back(i == 0 ? std::nullopt : std::optional<float>(-0.25F));
    }
  }
  if (sampling.max_new_tokens > 0) {
    const std::size_t i = running.num_made++;
    const bool is_end = !text_.empty() && i == text_.size();
    const TokenId id = is_end ? kEndId : text_.empty() ? 'a' : text_[i];
    const float log_prob = -static_cast<float>(i + 1) / 2;
    update.output_ids = {id};
    update.output_log_probs = {log_prob};
    if (request.top_logprobs_num > 0) update.output_top = {{{log_prob, id}}};
    update.versions = {{version_, 1}};
    if (is_end) update.finish = FinishReason{.kind = FinishReason::Kind::kStop, .matched = id};
    for (const std::string& stop : sampling.stop) {
      if (text_.substr(0, i + 1).ends_with(stop)) {
        update.finish = FinishReason{.kind = FinishReason::Kind::kStop, .matched = stop};
      }
    }
  }
  if (!update.finish && static_cast<int64_t>(running.num_made) >= sampling.max_new_tokens) {
    update.finish = FinishReason{.kind = FinishReason::Kind::kLength};
  }
  return update;
}

void FakeEngine::run(std::stop_token stop) {
  std::unique_lock lock(mutex_);
  while (!stop.stop_requested()) {
    const auto has_work = [&] {
      if (!refused_.empty()) return true;
      if (!is_paused_) return !running_.empty();
      return std::any_of(running_.begin(), running_.end(),
                         [](const auto& entry) { return entry.second.is_aborted; });
    };
    if (!changed_.wait(lock, stop, has_work)) continue;
    std::vector<std::pair<OnUpdate, GenerateUpdate>> updates = std::exchange(refused_, {});
    for (auto at = running_.begin(); at != running_.end();) {
      if (is_paused_ && !at->second.is_aborted) {
        ++at;
        continue;
      }
      updates.emplace_back(at->second.on_update, next_update(at->second));
      at = updates.back().second.finish ? running_.erase(at) : std::next(at);
    }
    ++steps_;
    lock.unlock();
    for (auto& [on_update, update] : updates) on_update(std::move(update));
    if (text_.empty())
      std::this_thread::sleep_for(
          std::chrono::milliseconds(1));  // an endless answer need not be quick
    lock.lock();
  }
}

}  // namespace slime::engine
