#include "tinker/service.h"

#include <fmt/format.h>

#include <chrono>
#include <utility>

#include "config/parse_flags.h"
#include "core/calendar.h"
#include "core/error.h"
#include "kernels/gpu/gpu.h"
#include "roles/run_start.h"
#include "tinker/token_losses.h"
#include "tinker/training_request.h"

namespace slime::tinker {
namespace fs = std::filesystem;
namespace {

using std::chrono::steady_clock;

constexpr std::chrono::milliseconds kLook{100};
/// How long a request waits for one with a lower number.
constexpr std::chrono::minutes kLongestGap{5};
constexpr std::size_t kMostSessions = 1024;
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

json::object tensor(const std::vector<float>& values) {
  return {{"data", json::value_from(values)},
          {"dtype", "float32"},
          {"shape", json::array{values.size()}}};
}

json::object to_json(const train::GivenPass& pass, const train::GivenBatch& batch,
                     bool has_elements) {
  json::array outputs;
  for (std::size_t i = 0; i < pass.log_probs.size(); ++i) {
    json::object output{{"logprobs", tensor(pass.log_probs[i])}};
    if (has_elements) {
      std::vector<float> elements = pass.log_probs[i];
      for (std::size_t t = 0; t < elements.size(); ++t) {
        elements[t] *= -batch.columns[i].weights[t];
        if (elements[t] == 0) elements[t] = 0;  // no minus zero
      }
      output["elementwise_loss"] = tensor(elements);
    }
    outputs.push_back(std::move(output));
  }
  json::object metrics;
  for (const auto& [name, sum] : pass.sums) metrics[name + ":sum"] = sum;
  if (!metrics.contains("loss:sum")) metrics["loss:sum"] = 0.0;
  return {{"loss_fn_output_type", "ArrayRecord"},
          {"loss_fn_outputs", std::move(outputs)},
          {"metrics", std::move(metrics)}};
}

train::GivenUpdate read_update(const FieldReader& fields) {
  const auto adam = fields.required().fields("adam_params");
  train::GivenUpdate update;
  update.lr = adam->number("learning_rate", 0, 1e3).value_or(update.lr);
  update.beta1 = adam->number("beta1", 0, 1).value_or(update.beta1);
  update.beta2 = adam->number("beta2", 0, 1).value_or(update.beta2);
  update.eps = adam->number("eps", 0, 1).value_or(update.eps);
  update.weight_decay = adam->number("weight_decay", 0, 1e3).value_or(0);
  update.clip_norm = adam->number("grad_clip_norm", 0).value_or(0);
  update.divisor = adam->number("gradient_divisor", 1e-30).value_or(1);
  return update;
}

/// Throws ConfigError where an earlier request of the model has failed.
void require_success(const Futures& futures, const std::string& id) {
  const std::optional<std::string> answer = futures.answer_of(id);
  const json::value parsed = answer ? parse_json(*answer, id) : json::value(json::object());
  const json::value* error = parsed.as_object().if_contains("error");
  if (!answer || error != nullptr)
    throw ConfigError(fmt::format("not updated: request {} has failed", id));
}

}  // namespace

Service::Service(const config::RunConfig& config, ServiceConfig service, const Clock& clock)
    : config_(config),
      service_(std::move(service)),
      text_(setup::load_model_text(
          config.hf_checkpoint.get(), false,
          std::chrono::floor<std::chrono::days>(local_time(clock.unix_seconds())))),
      model_(config, clock) {
  try {
    chat_.emplace(text::ChatTemplate::load(config.hf_checkpoint.get()));
  } catch (const ConfigError& error) {
    no_chat_ = error.what();
  }
  SharedSnapshot first = model_.snapshot();
  engine::EngineConfig engine = roles::make_engine_config(config, text_, kv_cache_bytes(config));
  sampler_ = std::make_unique<Sampler>(std::move(first), engine, clock);
}

Service::~Service() = default;

void Service::run(const std::function<bool()>& is_over) {
  while (!is_over()) {
    std::function<void()> job;
    {
      std::unique_lock lock(mutex_);
      changed_.wait_for(lock, kLook, [this] { return !jobs_.empty(); });
      if (!jobs_.empty()) {
        job = std::move(jobs_.front());
        jobs_.pop_front();
      } else if (const auto late = order_.give_up(steady_clock::now() - kLongestGap)) {
        lock.unlock();
        for (const std::string& future : late->futures) {
          futures_.fail(future,
                        fmt::format("seq_id {} did not come within {} minutes, and later ones "
                                    "waited for it",
                                    late->missing, kLongestGap.count()),
                        Blame::kUser);
        }
      }
    }
    if (job) job();
  }
}

std::function<void()> Service::answering(std::string future, Job job) {
  return [this, future = std::move(future), job = std::move(job)] {
    try {
      futures_.answer(future, job());
    } catch (const ConfigError& error) {
      futures_.fail(future, error.what(), Blame::kUser);
    } catch (const std::exception& error) {
      futures_.fail(future, error.what(), Blame::kServer);
    }
  };
}

void Service::push(std::vector<RequestOrder::Job> jobs) {
  for (auto& job : jobs) jobs_.push_back(std::move(job));
  changed_.notify_all();
}

json::object Service::enqueue(const FieldReader& fields, Job job) {
  const int64_t seq_id = fields.required().integer("seq_id", 0).value_or(0);
  const std::lock_guard lock(mutex_);
  require_model(fields);
  if (const auto known = order_.known(seq_id))
    return {{"request_id", *known}, {"model_id", *model_id_}};
  std::string future = futures_.open();
  push(order_.add(seq_id, future, answering(future, std::move(job))));
  return {{"request_id", future}, {"model_id", *model_id_}};
}

json::object Service::enqueue_now(Job job) {
  const std::lock_guard lock(mutex_);
  std::string future = futures_.open();
  push({answering(future, std::move(job))});
  return {{"request_id", future}};
}

void Service::require_model(const FieldReader& fields) const {
  const std::string id = fields.required().text("model_id", 256).value_or("");
  if (model_id_ != id) throw Refusal(404, fmt::format("model_id {}: there is no such model", id));
}

void Service::require_session(const std::string& session) const {
  if (!sessions_.contains(session))
    throw Refusal(404, fmt::format("session_id {}: there is no such session", session));
}

json::object Service::create_session(const json::object&) {
  const std::lock_guard lock(mutex_);
  if (sessions_.size() >= kMostSessions)
    throw Refusal(429, fmt::format("{} sessions are open; finish some", sessions_.size()));
  std::string id = fmt::format("session-{}", ++num_sessions_);
  sessions_.insert(id);
  return {{"type", "create_session"}, {"session_id", id}};
}

json::object Service::session_heartbeat(const json::object& body) {
  const std::lock_guard lock(mutex_);
  const std::string id = FieldReader(body, "").required().text("session_id", 256).value_or("");
  if (!sessions_.contains(id)) throw Refusal(410, fmt::format("session {} is over", id));
  return {{"type", "session_heartbeat"}};
}

json::object Service::finish_session(const std::string& session) {
  const std::lock_guard lock(mutex_);
  sessions_.erase(session);
  if (model_id_ && model_session_ == session) model_id_.reset();
  return {{"type", "finish_session"}};
}

std::string Service::begin_model(const std::string& session, int64_t model_number) {
  if (model_id_) {
    throw ConfigError(fmt::format(
        "{} is trained already: all weights of the model train, and there is one of it; finish "
        "the session of that model first",
        *model_id_));
  }
  model_id_ = fmt::format("{}:train:{}", session, model_number);
  model_session_ = session;
  order_ = RequestOrder();
  return *model_id_;
}

json::object Service::create_model(const json::object& body) {
  const FieldReader fields(body, "");
  const std::string session = fields.required().text("session_id", 256).value_or("");
  const int64_t number = fields.integer("model_seq_id", 0).value_or(0);
  const std::string base = fields.text("base_model", 4096).value_or(service_.model_name);
  int64_t rank = 0;
  if (const auto lora = fields.fields("lora_config")) rank = lora->integer("rank", 0).value_or(0);
  if (base != service_.model_name)
    throw Refusal(400, fmt::format("base_model {}: this server has {}", base, service_.model_name));
  if (rank > 0) {
    throw Refusal(400, fmt::format("lora_config.rank {}: there are no adapters here; rank 0 trains "
                                   "all weights",
                                   rank));
  }
  const std::string key = fmt::format("{}/{}", session, number);
  {
    const std::lock_guard lock(mutex_);
    require_session(session);
    if (const auto known = created_.find(key); known != created_.end())
      return {{"request_id", known->second}};
  }
  json::object answer = enqueue_now([this, session, number] {
    std::string id;
    {
      const std::lock_guard lock(mutex_);
      require_session(session);
      id = begin_model(session, number);
    }
    sampler_->stand_still([this] { model_.begin_again(); });
    return json::object{{"model_id", id}, {"type", "create_model"}};
  });
  const std::lock_guard lock(mutex_);
  created_[key] = std::string(answer.at("request_id").as_string());
  return answer;
}

json::object Service::get_info(const json::object& body) {
  const FieldReader fields(body, "");
  const std::lock_guard lock(mutex_);
  require_model(fields);
  return {{"type", "get_info"},
          {"model_data",
           {{"arch", config_.hf_checkpoint.get()},
            {"model_name", service_.model_name},
            {"tokenizer_id", fs::absolute(config_.hf_checkpoint.get()).string()}}},
          {"model_id", *model_id_},
          {"is_lora", false},
          {"lora_rank", 0},
          {"model_name", service_.model_name}};
}

json::object Service::get_server_capabilities() {
  return {{"supported_models", json::array{{{"model_name", service_.model_name},
                                            {"max_context_length", sampler_->max_request_tokens()},
                                            {"trainable", true},
                                            {"sampleable", true}}}}};
}

json::object Service::forward_backward(json::object body, bool is_forward_only) {
  const FieldReader fields(body, "");
  const bool only = is_forward_only || fields.boolean("forward_only").value_or(false);
  // Read when its turn comes: what is wrong with it is the future's to say.
  auto kept = std::make_shared<json::object>(std::move(body));
  return enqueue(FieldReader(*kept, ""), [this, kept, only, is_forward_only] {
    const FieldReader all(*kept, "");
    const auto input = all.required().fields(
        is_forward_only && all.has("forward_input") ? "forward_input" : "forward_backward_input");
    const TrainingBody body = read_json_body(*input, model_.limits().vocab_size);
    const FieldReader config(body.loss_fn_config, "loss_fn_config.");
    TokenLoss loss;
    if (only && body.loss_fn == "logprobs") {
      loss = {body.loss_fn, {}, no_loss()};
    } else {
      loss = make_token_loss(body.loss_fn, config, model_.train_config());
    }
    const train::GivenBatch batch = read_batch(body, loss, model_.limits());
    train::GivenPass pass;
    sampler_->stand_still([&] { pass = model_.pass(batch, loss.loss, !only); });
    return to_json(pass, batch, body.loss_fn == "cross_entropy");
  });
}

json::object Service::optim_step(const json::object& body) {
  const FieldReader fields(body, "");
  const train::GivenUpdate update = read_update(fields);
  // This program's own: the passes whose gradients are wanted, without which there is no update.
  const std::vector<std::string> needed = fields.texts("requires", 4096, 64);
  return enqueue(fields, [this, update, needed] {
    for (const std::string& pass : needed) require_success(futures_, pass);
    train::GivenUpdateReport report;
    sampler_->stand_still([&] { report = model_.update(update); });
    return json::object{{"metrics",
                         {{"grad_norm:mean", report.grad_norm},
                          {"learning_rate:mean", update.lr},
                          {"step:max", report.step}}}};
  });
}

json::object Service::flags() const { return config::flags_for_users(config_); }

}  // namespace slime::tinker
