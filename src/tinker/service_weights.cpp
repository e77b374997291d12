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
#include "model/adapter_files.h"
#include "tinker/service.h"
#include "tinker/user_metadata.h"

namespace slime::tinker {
namespace fs = std::filesystem;
namespace {

/// Snapshots of the trained model that can be sampled, the newest.
constexpr std::size_t kKeptSnapshots = 4;
/// The same of adapters, which are small.
constexpr std::size_t kKeptAdapters = 64;
/// Snapshots that are answered and not written.
constexpr std::size_t kMostUnwritten = 4;
constexpr std::size_t kLongestName = 128;
constexpr std::string_view kScheme = "tinker://";

bool is_name(std::string_view name) {
  return !name.empty() && name.size() <= kLongestName && name.front() != '.' &&
         std::ranges::all_of(name, [](char c) {
           return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '.' || c == '_' ||
                  c == '-';
         });
}

std::string sampler_name(const std::string& session, int64_t number) {
  return fmt::format("{}:sample:{}", session, number);
}

}  // namespace

std::string saver_of(const std::string& path) {
  if (!path.starts_with(kScheme)) return {};
  return path.substr(kScheme.size(), path.find('/', kScheme.size()) - kScheme.size());
}

fs::path Service::saved_folder(const std::string& model, const std::string& kind) const {
  std::string plain = model;
  std::ranges::replace(plain, ':', '-');
  if ((kind != "weights" && kind != "sampler_weights") || !is_name(plain))
    throw ConfigError(fmt::format("{}/{}: nothing is saved there", model, kind));
  return service_.store / stored_name(model) / kind;
}

fs::path Service::place_of(const std::string& model, const std::string& name,
                           const std::string& kind) const {
  if (name.starts_with("/")) {
    if (!service_.takes_paths)
      throw ConfigError(fmt::format("path {}: names are saved here, not paths", name));
    return fs::path(name).lexically_normal();
  }
  if (!is_name(name))
    throw ConfigError(fmt::format(
        "path {}: a name has letters, digits, '.', '_' and '-', at most {}", name, kLongestName));
  const fs::path folder = saved_folder(model, kind);
  std::error_code ignored;
  fs::create_directories(folder, ignored);
  return folder / name;
}

fs::path Service::named_by(const std::string& path) const {
  if (path.starts_with("/") && service_.takes_paths) return path;
  if (!path.starts_with(kScheme))
    throw ConfigError(fmt::format("path {}: should begin with {}", path, kScheme));
  const std::string rest = path.substr(kScheme.size());
  const std::size_t first = rest.find('/'), last = rest.rfind('/');
  const std::string model = rest.substr(0, first);
  const std::string name = last == std::string::npos ? "" : rest.substr(last + 1);
  const std::string kind =
      first == std::string::npos || last <= first ? "" : rest.substr(first + 1, last - first - 1);
  if (!is_name(name)) throw ConfigError(fmt::format("path {}: there is none of this form", path));
  return saved_folder(model, kind) / name;
}

fs::path Service::found(const std::string& path) const {
  const fs::path directory = named_by(path);
  saves_->finish([&](const NamedSave& save) { return save.directory == directory; });
  if (fs::is_directory(directory)) return directory;
  require_restored(path);
  throw ConfigError(fmt::format("path {}: there are no such weights", path));
}

void Service::require_restored(const std::string& path) const {
  const std::lock_guard lock(mutex_);
  const auto of = models_.find(saver_of(path));
  if (of != models_.end() && !of->second->is_restored())
    throw Refusal(503, fmt::format("{} is being restored", of->first));
}

json::object Service::save_weights(const json::object& body) {
  return enqueue("save_weights", body);
}

json::object Service::save_weights_for_sampler(const json::object& body) {
  return enqueue("save_weights_for_sampler", body);
}

json::object Service::load_weights(const json::object& body) {
  const FieldReader fields(body, "");
  const std::string from = fields.text("path", 4096).value_or("");
  // A model's own saves come before its own loads anyway.
  const std::string own = fields.text("model_id", 256).value_or("");
  if (own.empty() || !from.starts_with(fmt::format("{}{}/", kScheme, own))) require_restored(from);
  // Before this request is written down, so that one that is done again finds it. The future says what is wrong.
  try {
    const fs::path directory = named_by(from);
    saves_->finish([&](const NamedSave& save) { return save.directory == directory; });
  } catch (const ConfigError&) {
  }
  if (fields.has("model_id")) return enqueue("load_weights", body);
  const std::string path = fields.required().text("path", 4096).value_or("");
  const std::string session = fields.required().text("session_id", 256).value_or("");
  return enqueue_creation(session, fields.integer("model_seq_id", 0).value_or(0),
                          {{"path", path},
                           {"restores", fields.boolean("optimizer").value_or(false)},
                           {"user_metadata", read_user_metadata(fields)}});
}

Service::ModelJob Service::loading_job(const json::object& body) {
  const FieldReader fields(body, "");
  const std::string path = fields.required().text("path", 4096).value_or("");
  const bool restores = fields.boolean("optimizer").value_or(false);
  return [this, path, restores](Model& model) -> Answer {
    const fs::path directory = found(path);
    stand_still([&] { model.trained->load(directory, restores); });
    return json::object{{"path", path}, {"model_id", model.id}, {"type", "load_weights"}};
  };
}

Service::ModelJob Service::saving_job(const json::object& body, const std::string& kind,
                                      bool is_restored) {
  const FieldReader fields(body, "");
  const bool is_for_sampler = kind == "sampler_weights";
  const int64_t seq_id = fields.required().integer("seq_id", 0).value_or(0);
  std::string name = fields.text("path", 4096).value_or("");
  if (name.empty() && !is_for_sampler) name = fmt::format("checkpoint-{}", seq_id);
  const char* type = is_for_sampler ? "save_weights_for_sampler" : "save_weights";
  if (!name.empty()) {
    // A process that ended may have written it already, and not have said so.
    const bool overwrites = is_restored || fields.boolean("overwrite").value_or(false);
    return [this, name, kind, overwrites, type](Model& model) -> Answer {
      const fs::path directory = place_of(model.id, name, kind);
      if (kind == "sampler_weights" && model.trained->adapter() != nullptr) {
        save_behind(model, directory, overwrites);
      } else {
        model.trained->save(directory, overwrites, {{"user_metadata", model.user_metadata}});
      }
      const bool is_path = name.starts_with("/");
      return json::object{
          {"path",
           is_path ? directory.string() : fmt::format("{}{}/{}/{}", kScheme, model.id, kind, name)},
          {"type", type}};
    };
  }
  const auto number = fields.integer("sampling_session_seq_id", 0);
  return [this, number, seq_id, type](Model& model) -> Answer {
    SharedSnapshot taken;
    // A copy of an adapter is nobody's yet: engines go on.
    const auto take = [&] { taken = model.trained->snapshot(); };
    model.trained->adapter() != nullptr ? take() : stand_still(take);
    json::object answer = open_sampling_session(
        number ? sampler_name(model.session, *number)
               : fmt::format("{}:sample:{}-{}", model.session, model.number, seq_id),
        model.id, taken);
    answer["type"] = type;
    answer["updates"] = taken->updates;
    return answer;
  };
}

void Service::save_behind(Model& model, const fs::path& directory, bool overwrites) {
  saves_->finish([&](const NamedSave& save) { return save.directory == directory; });
  TrainedModel::check_saved_to(directory, overwrites);
  saves_->wait_for_room(kMostUnwritten);
  NamedSave save{.model = model.id,
                 .directory = directory,
                 .snapshot = model.trained->snapshot(),
                 .run_file = model.trained->run_file({{"user_metadata", model.user_metadata}})};
  const auto bytes = save.snapshot->adapter->weights().flat().nbytes();
  std::error_code unknown;
  const fs::space_info room = fs::space(directory.parent_path(), unknown);
  if (unknown || room.available < (kMostUnwritten + 1) * bytes ||
      !fs::is_directory(directory.parent_path(), unknown)) {
    // The answer says what goes wrong.
    write_saved_adapter(config_, *save.snapshot, save.run_file, directory);
    return;
  }
  const std::lock_guard lock(mutex_);
  require_session(model.session);  // what ends has been written (finish_session)
  saves_->add(std::move(save));
}

json::object Service::open_sampling_session(const std::string& id, const std::string& model,
                                            SharedSnapshot snapshot) {
  std::vector<fs::path> unused;
  {
    const std::lock_guard lock(mutex_);
    require_session(id.substr(0, id.find(':')));
    samplers_[id] = {.snapshot = std::move(snapshot),
                     .path = {},
                     .model = model,
                     .order = ++num_snapshots_,
                     .directory = {}};
    unused = keep_newest(id);
  }
  saves_->remove(unused);
  return {{"sampling_session_id", id}};
}

std::vector<fs::path> Service::keep_newest(const std::string& sampling_session) {
  std::erase(newest_samplers_, sampling_session);
  newest_samplers_.push_back(sampling_session);
  std::set<const void*> whole, adapters;
  std::deque<std::string> kept;
  std::vector<fs::path> unused;
  for (auto each = newest_samplers_.rbegin(); each != newest_samplers_.rend(); ++each) {
    Named& named = samplers_.at(*each);
    // One that is not read yet is of the kind that there is.
    const bool is_whole = named.snapshot ? named.snapshot->network != nullptr : base_ == nullptr;
    std::set<const void*>& of_kind = is_whole ? whole : adapters;
    of_kind.insert(named.snapshot ? static_cast<const void*>(named.snapshot.get()) : &named);
    if (of_kind.size() <= (is_whole ? kKeptSnapshots : kKeptAdapters)) {
      kept.push_front(*each);
      continue;
    }
    named.snapshot.reset();  // who is sampling holds it
    if (named.directory.empty()) continue;
    unused.push_back(std::exchange(named.directory, {}));
    journal_->remove(Journal::Kind::kSampler, *each);
  }
  newest_samplers_ = std::move(kept);
  return unused;
}

json::object Service::weights_info(const json::object& body) {
  const std::string path = FieldReader(body, "").required().text("tinker_path", 4096).value_or("");
  require_restored(path);
  return or_refuse(404, [&] {
    const fs::path directory = found(path);
    json::object answer{{"is_lora", false}, {"lora_rank", 0}};
    if (base_ && model::has_adapter(directory))
      answer = describe(model::AdapterFile(directory, base_->config()).form());
    answer["base_model"] = service_.model_name;
    return answer;
  });
}

SharedSnapshot Service::base_snapshot() {
  const std::lock_guard lock(whole_mutex_);
  if (!base_snapshot_)
    base_snapshot_ =
        base_ ? std::make_shared<Snapshot>() : whole_snapshot(config_, config_.hf_checkpoint.get());
  return base_snapshot_;
}

SharedSnapshot Service::stored_snapshot(const fs::path& directory) {
  if (base_ && model::has_adapter(directory)) return adapter_snapshot(*base_, directory);
  return whole_snapshot(config_, directory);
}

json::object Service::create_sampling_session(const json::object& body) {
  const FieldReader fields(body, "");
  const std::string session = fields.required().text("session_id", 256).value_or("");
  const std::string base = plain_name(fields.text("base_model", 4096).value_or(""));
  const std::string path = fields.text("model_path", 4096).value_or("");
  {
    const std::lock_guard lock(mutex_);
    require_session(session);
  }
  if (path.empty() && base.empty()) throw Refusal(400, "base_model or model_path is missing");
  if (path.empty() && base != service_.model_name)
    throw Refusal(400, fmt::format("base_model {}: this server has {}", base, service_.model_name));
  require_restored(path);
  Named named{.snapshot = {},
              .is_base = path.empty(),
              .path = path,
              .model = {},
              .order = 0,
              .directory = {}};
  or_refuse(404, [&] {
    if (!path.empty()) named.snapshot = saves_->find(named_by(path));
    if (!named.snapshot)
      named.snapshot = path.empty() ? base_snapshot() : stored_snapshot(found(path));
  });
  const auto number = fields.integer("sampling_session_seq_id", 0);
  std::unique_lock lock(mutex_);
  require_session(session);  // it may have ended while the weights were read
  const std::string id = number ? sampler_name(session, *number)
                                : fmt::format("{}:sample:own-{}", session, ++num_samplers_);
  if (journal_)
    journal_->write(Journal::Kind::kSampler, id,
                    {{"path", named.path}, {"is_base", named.is_base}});
  const bool is_base = named.is_base;
  samplers_[id] = std::move(named);
  std::vector<fs::path> unused;
  if (!is_base) unused = keep_newest(id);
  lock.unlock();
  saves_->remove(unused);
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

Service::Named Service::sampler_of(const std::string& sampling_session) const {
  const std::lock_guard lock(mutex_);
  const auto known = samplers_.find(sampling_session);
  if (known != samplers_.end()) return known->second;
  const std::string session = sampling_session.substr(0, sampling_session.find(':'));
  for (const auto& [id, model] : models_) {
    if (model->session == session && !model->is_restored())
      throw Refusal(503, fmt::format("{} is being restored", id));
  }
  throw Refusal(404, fmt::format("sampling_session_id {}: there is none", sampling_session));
}

SharedSnapshot Service::snapshot_of(const std::string& sampling_session) {
  if (SharedSnapshot known = sampler_of(sampling_session).snapshot) return known;
  // Of another process. Requests that come together read it once.
  const std::lock_guard reading(reading_mutex_);
  Named named = sampler_of(sampling_session);
  if (named.snapshot) return named.snapshot;
  require_restored(named.path);
  or_refuse(404, [&] {
    if (named.is_base) named.snapshot = base_snapshot();
    if (!named.path.empty()) named.snapshot = saves_->find(named_by(named.path));
    if (!named.path.empty() && !named.snapshot) named.directory = found(named.path);
    if (!named.directory.empty()) named.snapshot = stored_snapshot(named.directory);
  });
  if (!named.snapshot) {
    throw Refusal(404, fmt::format("sampling_session_id {}: its weights are gone; the newest {} "
                                   "snapshots are kept, {} of adapters, save weights by name to "
                                   "keep others",
                                   sampling_session, kKeptSnapshots, kKeptAdapters));
  }
  std::vector<fs::path> unused;
  {
    const std::lock_guard lock(mutex_);
    const auto known = samplers_.find(sampling_session);
    if (known == samplers_.end()) return named.snapshot;
    known->second.snapshot = named.snapshot;
    if (!named.is_base) unused = keep_newest(sampling_session);
  }
  saves_->remove(unused);
  return named.snapshot;
}

}  // namespace slime::tinker
