/// The requests of the service that make models, and tell what they are.

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <random>
#include <string>
#include <utility>

#include "core/error.h"
#include "model/adapter_files.h"
#include "tinker/service.h"
#include "tinker/user_metadata.h"

namespace slime::tinker {
namespace fs = std::filesystem;
namespace {

std::string model_name(const std::string& session, int64_t number) {
  return fmt::format("{}:train:{}", session, number);
}

uint64_t random_seed() {
  std::random_device device;
  return device();
}

}  // namespace

json::object Service::enqueue_creation(const std::string& session, int64_t number,
                                       json::object record) {
  const std::string key = fmt::format("{}/{}", session, number);
  const std::lock_guard lock(mutex_);
  require_session(session);
  hear(session);
  if (const auto known = created_.find(key); known != created_.end())
    return {{"request_id", known->second}};
  if (jobs_.size() >= kMostWaiting)
    throw Refusal(429, fmt::format("{} models wait to be made already", kMostWaiting));
  const std::string future = futures_.open(session);
  record["session"] = session;
  record["number"] = number;
  record["future"] = future;
  try {
    if (journal_) journal_->write(Journal::Kind::kModel, model_name(session, number), record);
  } catch (const Refusal& refusal) {
    futures_.fail(future, refusal.what(), Blame::kServer);
    throw;
  }
  jobs_.push_back(answering(future, [this, session, number, record]() -> Answer {
    try {
      return created_answer(add_model(session, number, record), record);
    } catch (...) {
      forget_models({model_name(session, number)});
      throw;
    }
  }));
  created_[key] = future;
  changed_.notify_all();
  return {{"request_id", future}};
}

std::string Service::add_model(const std::string& session, int64_t number,
                               const json::object& record) {
  {
    const std::lock_guard lock(mutex_);
    require_session(session);
    if (static_cast<int64_t>(models_.size()) >= service_.max_models)
      throw ConfigError(
          fmt::format("{} models are trained already; finish a session of theirs", models_.size()));
  }
  auto model = std::make_shared<Model>();
  model->id = model_name(session, number);
  model->session = session;
  model->number = number;
  model->user_metadata = read_user_metadata(FieldReader(record, ""));
  model->trained = make_model(record);
  if (journal_ && record.contains("path")) save_state(*model);
  const std::lock_guard lock(mutex_);
  require_session(session);
  // It has its turn at once, and not all the time that others had before it.
  const auto least =
      std::ranges::min_element(models_, {}, [](const auto& each) { return each.second->seconds; });
  if (least != models_.end()) model->seconds = least->second->seconds;
  models_[model->id] = model;
  return model->id;
}

std::shared_ptr<TrainedModel> Service::make_whole() {
  {
    const std::lock_guard lock(mutex_);
    for (const auto& [id, model] : models_) {
      if (model->trained == whole_ && whole_)
        throw ConfigError(fmt::format(
            "{} is trained already: all weights of the model train, and there is one of it; finish "
            "the session of that model first",
            id));
    }
  }
  if (!whole_) {
    whole_ = std::make_shared<TrainedModel>(config_, clock_);
    whole_sampler(whole_->snapshot());
  } else {
    stand_still([this] { whole_->begin_again(); });
  }
  return whole_;
}

std::shared_ptr<TrainedModel> Service::make_model(const json::object& record) {
  const FieldReader fields(record, "");
  const std::string path = fields.text("path").value_or("");
  if (path.empty()) {
    const LoraWish wish = read_lora(fields, service_.max_lora_rank, 0);
    if (wish.rank == 0) return make_whole();
    return make_adapter(form_of(wish, base_->config(), service_.model_name), wish.seed);
  }
  return read_model(found(path), fields.boolean("restores").value_or(false));
}

std::shared_ptr<TrainedModel> Service::read_model(const fs::path& directory, bool restores) {
  std::optional<model::AdapterFile> adapter;
  if (base_ && model::has_adapter(directory)) adapter.emplace(directory, base_->config());
  const std::shared_ptr<TrainedModel> made =
      adapter ? make_adapter(adapter->form(), 0) : make_whole();
  stand_still([&] { made->load(directory, restores, adapter ? &*adapter : nullptr); });
  return made;
}

json::object Service::created_answer(const std::string& id, const json::object& record) const {
  if (!record.contains("path")) return {{"model_id", id}, {"type", "create_model"}};
  return {{"path", record.at("path")}, {"model_id", id}, {"type", "load_weights"}};
}

std::string Service::no_adapters() const {
  return service_.takes_paths
             ? "a session of slime.start has no adapters; rank 0 trains all weights"
             : "a GPU has adapters in bfloat16 and float16: begin with --dtype "
               "bfloat16, or train all weights with rank 0";
}

std::shared_ptr<TrainedModel> Service::make_adapter(const model::AdapterForm& form, uint64_t seed) {
  if (!base_) throw ConfigError(no_adapters());
  return std::make_shared<TrainedModel>(config_, clock_, base_, form, seed);
}

json::object Service::create_model(const json::object& body) {
  const FieldReader fields(body, "");
  const std::string session = fields.required().text("session_id", 256).value_or("");
  const int64_t number = fields.integer("model_seq_id", 0).value_or(0);
  const std::string base =
      plain_name(fields.text("base_model", 4096).value_or(service_.model_name));
  if (base != service_.model_name)
    throw Refusal(400, fmt::format("base_model {}: this server has {}", base, service_.model_name));
  const LoraWish wish = read_lora(fields, service_.max_lora_rank, random_seed());
  if (wish.rank > 0 && !base_)
    throw Refusal(400, fmt::format("lora_config.rank {}: {}", wish.rank, no_adapters()));
  // The seed is written down: another process begins with the same numbers.
  return enqueue_creation(
      session, number,
      {{"lora_config", to_json(wish)}, {"user_metadata", read_user_metadata(fields)}});
}

json::object Service::get_info(const json::object& body) {
  const FieldReader fields(body, "");
  const std::lock_guard lock(mutex_);
  const SharedModel model = model_of(fields.required().text("model_id", 256).value_or(""));
  if (!model->trained) throw Refusal(503, fmt::format("{} is being restored", model->id));
  const model::AdapterForm* adapter = model->trained->adapter();
  return {{"type", "get_info"},
          {"model_data",
           {{"arch", architecture_},
            {"model_name", service_.model_name},
            {"tokenizer_id", fs::absolute(config_.hf_checkpoint.get()).string()}}},
          {"model_id", model->id},
          {"is_lora", adapter != nullptr},
          {"lora_rank", adapter != nullptr ? adapter->config.rank : 0},
          {"model_name", service_.model_name}};
}

}  // namespace slime::tinker
