#include "tinker/service.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <exception>
#include <mutex>
#include <utility>

#include "config/parse_flags.h"
#include "core/calendar.h"
#include "core/error.h"
#include "core/safe_text.h"
#include "kernels/gpu/gpu.h"
#include "model/placement.h"
#include "roles/run_start.h"

namespace slime::tinker {
namespace {

using std::chrono::steady_clock;

constexpr std::chrono::milliseconds kLook{100};
/// How long a request waits for one with a lower number.
constexpr std::chrono::minutes kLongestGap{5};
constexpr int64_t kHighestSeqId = int64_t{1} << 53;
constexpr double kCpuCacheGib = 1;
constexpr double kShareOfGpu = 0.4;
constexpr int64_t kGibibyte = int64_t{1} << 30;

int64_t kv_cache_bytes(const config::RunConfig& config) {
  const double asked = config.kv_cache_gb;
  if (asked > 0) return static_cast<int64_t>(asked * static_cast<double>(kGibibyte));
  if (config.device == "cpu")
    return static_cast<int64_t>(kCpuCacheGib * static_cast<double>(kGibibyte));
  return static_cast<int64_t>(kShareOfGpu *
                              static_cast<double>(kernels::opened_gpu().free_bytes()));
}

}  // namespace

Service::Service(const config::RunConfig& config, ServiceConfig service, const Clock& clock)
    : config_(config),
      service_(std::move(service)),
      text_(setup::load_model_text(
          config.hf_checkpoint.get(), false,
          std::chrono::floor<std::chrono::days>(local_time(clock.unix_seconds())))),
      clock_(clock),
      journal_(service_.takes_paths ? nullptr : std::make_unique<Journal>(service_.store)),
      futures_(journal_ ? journal_->num_starts() : 1),
      saves_(std::make_unique<SaveWriter>([&config](const NamedSave& save) {
        write_saved_adapter(config, *save.snapshot, save.run_file, save.directory);
      })) {
  try {
    chat_.emplace(text::ChatTemplate::load(config.hf_checkpoint.get()));
  } catch (const ConfigError& error) {
    no_chat_ = error.what();
  }
  // A script's own session trains all weights: one copy fewer.
  if (service_.takes_paths || !has_adapters(config)) {
    whole_ = std::make_shared<TrainedModel>(config, clock);
    limits_ = limits_of(whole_->model());
    architecture_ = whole_->model().model_type;
    whole_sampler(whole_->snapshot());
    if (journal_) restore();
    return;
  }
  const model::Precision precision = model::precision_on(config.device, config.dtype);
  base_ = model::load_network(config.hf_checkpoint.get(), precision);
  check_takes_requests(config, base_->config().has_experts());
  limits_ = limits_of(base_->config());
  architecture_ = base_->config().model_type;
  // The engine has a network over the same numbers, whose adapters are its own.
  model::Precision over = precision;
  over.shared = &base_->weights();
  adapter_sampler_ = std::make_unique<AdapterSampler>(
      model::make_blank_network(base_->config(), over),
      roles::make_engine_config(config, text_, kv_cache_bytes(config)), clock);
  restore();
}

Sampler& Service::whole_sampler(const SharedSnapshot& first) {
  const std::lock_guard lock(whole_mutex_);
  if (!whole_sampler_) {
    whole_sampler_ = std::make_unique<Sampler>(
        first, roles::make_engine_config(config_, text_, kv_cache_bytes(config_)), clock_);
  }
  return *whole_sampler_;
}

void Service::stand_still(const std::function<void()>& body) {
  const auto whole = [this, &body] {
    Sampler* sampler = nullptr;
    {
      const std::lock_guard lock(whole_mutex_);
      sampler = whole_sampler_.get();
    }
    sampler != nullptr ? sampler->stand_still(body) : body();
  };
  adapter_sampler_ ? adapter_sampler_->stand_still(whole) : whole();
}

int64_t Service::max_request_tokens() {
  if (adapter_sampler_) return adapter_sampler_->max_request_tokens();
  const std::lock_guard lock(whole_mutex_);
  return whole_sampler_->max_request_tokens();
}

void Service::run(const std::function<bool()>& is_over) {
  steady_clock::time_point looked;
  while (!is_over()) {
    if (const auto job = next_job()) job();
    if (steady_clock::now() - looked < kLook) continue;
    looked = steady_clock::now();
    give_up_late();
    end_silent_sessions();
  }
  if (!journal_) return;
  std::map<std::string, SharedModel> models;
  {
    const std::lock_guard lock(mutex_);
    models = models_;
  }
  for (const auto& [id, shared] : models) {
    Model& model = *shared;
    if (model.trained && model.unsaved_seconds > 0 && !model.trained->has_gradients())
      write_or_tell(id, [&] { save_state(model); });
  }
}

std::function<void()> Service::next_job() {
  std::unique_lock lock(mutex_);
  const auto has_jobs = [this] {
    return !jobs_.empty() || std::ranges::any_of(models_, [](const auto& each) {
      return !each.second->jobs.empty();
    });
  };
  if (!changed_.wait_for(lock, kLook, has_jobs)) return {};
  if (!jobs_.empty()) {
    auto job = std::move(jobs_.front());
    jobs_.pop_front();
    return job;
  }
  SharedModel next;
  for (const auto& [id, model] : models_) {
    if (!model->jobs.empty() && (!next || model->seconds < next->seconds)) next = model;
  }
  auto job = std::move(next->jobs.front().job);
  next->jobs.pop_front();
  return [this, next, job = std::move(job)] {
    const auto start = steady_clock::now();
    job();
    bool is_over = false;
    {
      const std::lock_guard done(mutex_);
      next->seconds += std::chrono::duration<double>(steady_clock::now() - start).count();
      is_over = next->is_over;
    }
    // Its session ended meanwhile: nobody reads what it wrote.
    if (is_over) forget_models({next->id});
  };
}

void Service::give_up_late() {
  const std::lock_guard lock(mutex_);
  for (const auto& [id, model] : models_) {
    if (!model->writing.empty()) continue;  // it may be the one that is missing
    const auto given_up = model->order.give_up(steady_clock::now() - kLongestGap);
    if (!given_up) continue;
    const ModelJob refuse = [missing = given_up->missing](Model&) -> Answer {
      throw ConfigError(
          fmt::format("seq_id {} did not come within {} minutes, and later ones "
                      "waited for it",
                      missing, kLongestGap.count()));
    };
    // In their turn: what is done and what is not is told by one number.
    for (const auto& [seq_id, future] : given_up->futures) {
      const AcceptedRequest request{
          .seq_id = seq_id, .route = "given up", .future = future, .body = {}};
      model->jobs.push_back({future, [this, request, at = model.get(), refuse] {
                               do_request(*at, request, refuse);
                             }});
    }
  }
}

std::function<void()> Service::answering(std::string future, std::function<Answer()> job) {
  return [this, future = std::move(future), job = std::move(job)] {
    futures_.answer(future, outcome_of(job));
  };
}

json::object Service::enqueue(const char* route, json::object body) {
  const FieldReader fields(body, "");
  const std::string model_id = fields.required().text("model_id", 256).value_or("");
  const int64_t seq_id = fields.required().integer("seq_id", 0).value_or(0);
  AcceptedRequest request{.seq_id = seq_id, .route = route, .future = {}, .body = {}};
  if (journal_) request.body = json_text(body);
  return enqueue(
      model_id, std::move(request),
      [job = job_or_failure(route, std::move(body), false)](std::string) { return job; });
}

Service::ModelJob Service::job_or_failure(const std::string& route, json::object body,
                                          bool is_restored) {
  try {
    return job_of(route, std::make_shared<const json::object>(std::move(body)), is_restored);
  } catch (const ConfigError& error) {
    return [message = std::string(error.what())](Model&) -> Answer { throw ConfigError(message); };
  }
}

void Service::write_down(Model& model, const AcceptedRequest& request,
                         std::unique_lock<std::mutex>& lock) {
  std::exception_ptr problem;
  model.writing.insert(request.seq_id);
  lock.unlock();
  try {
    journal_->accept(model.id, request);
  } catch (...) {
    problem = std::current_exception();
  }
  lock.lock();
  model.writing.erase(request.seq_id);
  changed_.notify_all();
  const bool is_over = model.is_over;
  if (!problem && is_over)
    problem =
        std::make_exception_ptr(Refusal(404, fmt::format("session {} is over", model.session)));
  if (!problem) return;
  lock.unlock();
  if (is_over) forget_models({model.id});
  const auto fail = [&]() -> Answer { std::rethrow_exception(problem); };
  futures_.answer(request.future, outcome_of(fail));
  std::rethrow_exception(problem);  // it may be sent again
}

json::object Service::enqueue(const std::string& model_id, AcceptedRequest request,
                              const std::function<ModelJob(std::string body)>& make_job) {
  if (request.seq_id > kHighestSeqId)
    throw ConfigError(fmt::format("seq_id {}: is beyond {}", request.seq_id, kHighestSeqId));
  std::unique_lock lock(mutex_);
  const SharedModel model = model_of(model_id);
  hear(model->session);
  // A client that sends it again while it is written gets the same future.
  changed_.wait(lock, [&] { return !model->writing.contains(request.seq_id); });
  if (model->is_over) throw Refusal(404, fmt::format("session {} is over", model->session));
  if (const auto known = model->order.known(request.seq_id))
    return {{"request_id", *known}, {"model_id", model_id}};
  if (model->order.num_waiting() + model->jobs.size() + model->writing.size() >= kMostWaiting)
    throw Refusal(429, fmt::format("{} requests of {} wait already", kMostWaiting, model_id));
  request.future = futures_.open(model->session);
  if (model->order.is_late(request.seq_id)) {
    model->order.remember(request.seq_id, request.future);
    futures_.fail(request.future,
                  fmt::format("seq_id {}: its turn has passed; those up to {} are done or given up",
                              request.seq_id, model->order.last()),
                  Blame::kUser);
    return {{"request_id", request.future}, {"model_id", model_id}};
  }
  if (journal_) write_down(*model, request, lock);
  std::string body = std::exchange(request.body, {});
  add_job(model, request, make_job(std::move(body)));
  changed_.notify_all();
  return {{"request_id", request.future}, {"model_id", model_id}};
}

void Service::add_job(const SharedModel& model, const AcceptedRequest& request, ModelJob job) {
  // The model outlives its jobs: both are dropped together, under the mutex.
  auto ready = model->order.add(
      request.seq_id, request.future,
      [this, request, at = model.get(), job = std::move(job)] { do_request(*at, request, job); });
  for (auto& each : ready) model->jobs.push_back({std::move(each.future), std::move(each.job)});
}

void Service::do_request(Model& model, const AcceptedRequest& request, const ModelJob& job) {
  const auto start = steady_clock::now();
  std::unique_lock saving(model.saving, std::defer_lock);
  if (request.route.starts_with("save_weights")) saving.lock();
  Answer answer = outcome_of([&] { return job(model); });
  const int64_t done = std::max(model.num_done.load(), request.seq_id);
  delete_again(model, done);
  model.num_done = done;
  if (saving) saving.unlock();
  model.unsaved_seconds += std::chrono::duration<double>(steady_clock::now() - start).count();
  if (!journal_) return futures_.answer(request.future, std::move(answer));
  // It was done, whether that can be written or not: after a kill it is done again.
  const bool is_kept = write_or_tell(model.id, [&] { keep_answer(model.id, request, answer); });
  const bool has_loaded = request.route == "load_weights" && !is_failure(answer);
  futures_.answer(request.future, std::move(answer));
  if (!is_kept || model.trained == nullptr || model.trained->has_gradients()) return;
  // What was loaded may be overwritten, and is not read again.
  const bool is_due =
      request.route == "optim_step" && model.unsaved_seconds >= service_.state_seconds;
  if (is_due || has_loaded) write_or_tell(model.id, [&] { save_state(model); });
}

void Service::keep_answer(const std::string& model, const AcceptedRequest& request,
                          const Answer& answer) {
  AcceptedRequest kept = request;
  const auto message = protobuf_of(answer);
  kept.is_message = message.has_value();
  kept.body = message ? *message : json_text(json_of(answer));
  journal_->answer(model, kept);
}

Service::SharedModel Service::model_of(const std::string& id) const {
  const auto found = models_.find(id);
  if (found == models_.end())
    throw Refusal(404, fmt::format("model_id {}: there is no such model", id));
  return found->second;
}

json::object Service::get_server_capabilities() {
  return {{"supported_models", json::array{{{"model_name", service_.model_name},
                                            {"max_context_length", max_request_tokens()},
                                            {"trainable", true},
                                            {"sampleable", true}}}}};
}

json::object Service::flags() const { return config::flags_for_users(config_); }

}  // namespace slime::tinker
