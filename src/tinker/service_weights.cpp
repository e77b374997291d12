/// The requests of the service that save and load weights, and those that make them ready to be sampled.

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <set>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>

#include "core/error.h"
#include "tinker/service.h"

namespace slime::tinker {
namespace fs = std::filesystem;
namespace {

/// Snapshots of the trained model that can be sampled, the newest.
constexpr std::size_t kKeptSnapshots = 4;
constexpr std::size_t kLongestName = 128;
constexpr std::string_view kScheme = "tinker://";

bool is_name(std::string_view name) {
  return !name.empty() && name.size() <= kLongestName && name != "." && name != ".." &&
         std::ranges::all_of(name, [](char c) {
           return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '.' || c == '_' ||
                  c == '-';
         });
}

/// Model ids have colons.
std::string folder_name(std::string_view id) {
  std::string name;
  for (const char c : id) name += c == ':' ? std::string("%3A") : std::string(1, c);
  return name;
}

}  // namespace

fs::path Service::place_of(const std::string& name, const std::string& kind) const {
  if (name.starts_with("/")) {
    if (!service_.takes_paths)
      throw ConfigError(fmt::format("path {}: names are saved here, not paths", name));
    return fs::path(name).lexically_normal();
  }
  if (!is_name(name))
    throw ConfigError(fmt::format(
        "path {}: a name has letters, digits, '.', '_' and '-', at most {}", name, kLongestName));
  const fs::path folder = service_.store / folder_name(*model_id_) / kind;
  std::error_code ignored;
  fs::create_directories(folder, ignored);
  return folder / name;
}

fs::path Service::found(const std::string& path) const {
  fs::path directory;
  if (path.starts_with("/")) {
    if (!service_.takes_paths)
      throw ConfigError(fmt::format("path {}: should begin with {}", path, kScheme));
    directory = path;
  } else {
    if (!path.starts_with(kScheme))
      throw ConfigError(fmt::format("path {}: should begin with {}", path, kScheme));
    const std::string rest = path.substr(kScheme.size());
    const std::size_t first = rest.find('/'), last = rest.rfind('/');
    const std::string model = rest.substr(0, first);
    const std::string name = last == std::string::npos ? "" : rest.substr(last + 1);
    const std::string kind =
        first == std::string::npos || last <= first ? "" : rest.substr(first + 1, last - first - 1);
    std::string plain = model;
    std::ranges::replace(plain, ':', '-');
    if ((kind != "weights" && kind != "sampler_weights") || !is_name(name) || !is_name(plain))
      throw ConfigError(fmt::format("path {}: there is none of this form", path));
    directory = service_.store / folder_name(model) / kind / name;
  }
  if (!fs::is_directory(directory))
    throw ConfigError(fmt::format("path {}: there are no such weights", path));
  return directory;
}

json::object Service::save_weights(const json::object& body) {
  const FieldReader fields(body, "");
  const std::string name = fields.text("path", 4096).value_or("");
  const bool overwrites = fields.boolean("overwrite").value_or(false);
  const int64_t seq_id = fields.required().integer("seq_id", 0).value_or(0);
  return enqueue(fields, [this, name, overwrites, seq_id] {
    const std::string given = name.empty() ? fmt::format("checkpoint-{}", seq_id) : name;
    fs::path directory;
    std::string id;
    {
      const std::lock_guard lock(mutex_);
      if (!model_id_) throw ConfigError("the model is gone");
      directory = place_of(given, "weights");
      id = *model_id_;
    }
    model_.save(directory, overwrites);
    const bool is_path = given.starts_with("/");
    return json::object{
        {"path", is_path ? directory.string() : fmt::format("{}{}/weights/{}", kScheme, id, given)},
        {"type", "save_weights"}};
  });
}

json::object Service::load_weights(const json::object& body) {
  const FieldReader fields(body, "");
  const std::string path = fields.required().text("path", 4096).value_or("");
  const bool restores = fields.boolean("optimizer").value_or(false);
  const auto load = [this, path, restores](const std::string& id) {
    const fs::path directory = found(path);
    sampler_->stand_still([&] { model_.load(directory, restores); });
    return json::object{{"path", path}, {"model_id", id}, {"type", "load_weights"}};
  };
  if (fields.has("model_id")) {
    const std::string id = fields.text("model_id", 256).value_or("");
    return enqueue(fields, [load, id] { return load(id); });
  }
  const std::string session = fields.required().text("session_id", 256).value_or("");
  const int64_t number = fields.integer("model_seq_id", 0).value_or(0);
  return enqueue_now([this, load, session, number] {
    std::string id;
    {
      const std::lock_guard lock(mutex_);
      require_session(session);
      id = begin_model(session, number);
    }
    try {
      return load(id);
    } catch (...) {
      const std::lock_guard lock(mutex_);
      model_id_.reset();
      throw;
    }
  });
}

json::object Service::open_sampling_session(const std::string& id, SharedSnapshot snapshot) {
  const std::lock_guard lock(mutex_);
  samplers_[id] = {std::move(snapshot), false, ""};
  newest_samplers_.push_back(id);
  std::set<const Snapshot*> kept;
  for (auto each = newest_samplers_.rbegin(); each != newest_samplers_.rend(); ++each) {
    SharedSnapshot& held = samplers_[*each].snapshot;
    if (held) kept.insert(held.get());
    if (kept.size() > kKeptSnapshots) held.reset();  // who is sampling holds it
  }
  return {{"sampling_session_id", id}};
}

json::object Service::save_weights_for_sampler(const json::object& body) {
  const FieldReader fields(body, "");
  const std::string name = fields.text("path", 4096).value_or("");
  const bool overwrites = fields.boolean("overwrite").value_or(false);
  return enqueue(fields, [this, name, overwrites] {
    std::string id;
    {
      const std::lock_guard lock(mutex_);
      if (!model_id_) throw ConfigError("the model is gone");
      id = *model_id_;
    }
    if (!name.empty()) {
      fs::path directory;
      {
        const std::lock_guard lock(mutex_);
        directory = place_of(name, "sampler_weights");
      }
      model_.save(directory, overwrites);
      const bool is_path = name.starts_with("/");
      return json::object{
          {"path", is_path ? directory.string()
                           : fmt::format("{}{}/sampler_weights/{}", kScheme, id, name)},
          {"type", "save_weights_for_sampler"}};
    }
    SharedSnapshot taken;
    sampler_->stand_still([&] { taken = model_.snapshot(); });
    std::string sampler;
    {
      const std::lock_guard lock(mutex_);
      sampler = fmt::format("{}:sample:{}", model_session_, ++num_samplers_);
    }
    json::object answer = open_sampling_session(sampler, taken);
    answer["type"] = "save_weights_for_sampler";
    answer["updates"] = taken->updates;
    return answer;
  });
}

json::object Service::weights_info(const json::object& body) {
  const std::string path = FieldReader(body, "").required().text("tinker_path", 4096).value_or("");
  try {
    found(path);
  } catch (const ConfigError& error) {
    throw Refusal(404, error.what());
  }
  return {{"base_model", service_.model_name}, {"is_lora", false}, {"lora_rank", 0}};
}

SharedSnapshot Service::base_snapshot() {
  const std::lock_guard lock(base_mutex_);
  if (!base_) base_ = model_.snapshot_of(config_.hf_checkpoint.get());
  return base_;
}

json::object Service::create_sampling_session(const json::object& body) {
  const FieldReader fields(body, "");
  const std::string session = fields.required().text("session_id", 256).value_or("");
  const std::string base = fields.text("base_model", 4096).value_or("");
  const std::string path = fields.text("model_path", 4096).value_or("");
  {
    const std::lock_guard lock(mutex_);
    require_session(session);
  }
  if (path.empty() && base.empty()) throw Refusal(400, "base_model or model_path is missing");
  if (path.empty() && base != service_.model_name)
    throw Refusal(400, fmt::format("base_model {}: this server has {}", base, service_.model_name));
  Named named{.snapshot = {}, .is_base = path.empty(), .path = path};
  try {
    named.snapshot = path.empty() ? base_snapshot() : model_.snapshot_of(found(path));
  } catch (const ConfigError& error) {
    throw Refusal(404, error.what());
  }
  const std::lock_guard lock(mutex_);
  std::string id = fmt::format("{}:sample:{}", session, ++num_samplers_);
  samplers_[id] = std::move(named);
  return {{"sampling_session_id", id}};
}

json::object Service::sampler(const std::string& sampling_session) {
  const std::lock_guard lock(mutex_);
  const auto known = samplers_.find(sampling_session);
  if (known == samplers_.end())
    throw Refusal(404, fmt::format("sampler {}: there is none", sampling_session));
  return {
      {"sampler_id", sampling_session},
      {"base_model", service_.model_name},
      {"model_path", known->second.path.empty() ? json::value() : json::value(known->second.path)}};
}

SharedSnapshot Service::snapshot_of(const std::string& sampling_session) {
  const auto known = samplers_.find(sampling_session);
  if (known == samplers_.end())
    throw Refusal(404, fmt::format("sampling_session_id {}: there is none", sampling_session));
  if (!known->second.snapshot) {
    throw Refusal(404, fmt::format("sampling_session_id {}: its weights are gone; the newest {} "
                                   "snapshots are kept, save weights by name to keep others",
                                   sampling_session, kKeptSnapshots));
  }
  return known->second.snapshot;
}

}  // namespace slime::tinker
