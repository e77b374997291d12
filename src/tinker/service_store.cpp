/// The requests of the service that list and remove what was saved by name.

#include <fmt/format.h>

#include <chrono>
#include <cstdio>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <system_error>

#include "core/calendar.h"
#include "tinker/service.h"
#include "tinker/user_metadata.h"
#include "train/checkpoint.h"
#include "train/checkpoint_room.h"

namespace slime::tinker {
namespace fs = std::filesystem;
namespace {

/// "2026-01-31T12:00:00Z": when it was written; nothing where it is gone.
std::optional<std::string> time_of(const fs::path& path) {
  std::error_code error;
  const fs::file_time_type time_written = fs::last_write_time(path, error);
  if (error) return std::nullopt;
  const auto written =
      std::chrono::floor<std::chrono::seconds>(std::chrono::file_clock::to_sys(time_written));
  const auto day = std::chrono::floor<std::chrono::days>(written);
  const std::chrono::hh_mm_ss time(written - day);
  return fmt::format("{}T{:02}:{:02}:{:02}Z",
                     to_date_text(std::chrono::local_days(day.time_since_epoch())),
                     time.hours().count(), time.minutes().count(), time.seconds().count());
}

/// What is no directory was not saved here, and stays.
std::error_code remove_saved(const fs::path& directory) {
  std::error_code error;
  if (!fs::is_directory(directory, error)) return {};
  // Under another name first: a process that dies on the way leaves no part of it under its own.
  const fs::path aside = directory.parent_path() / ("." + directory.filename().string() + ".gone");
  fs::remove_all(aside, error);
  fs::rename(directory, aside, error);
  fs::remove_all(error ? directory : aside, error);
  return error;
}

}  // namespace

json::object Service::checkpoints(const std::string& model) const {
  require_restored(fmt::format("tinker://{}/", model));
  // What cannot be written is not listed.
  try {
    saves_->finish([&](const NamedSave& save) { return save.model == model; });
  } catch (const ConfigError&) {
  }
  json::array all;
  const auto add = [&](const char* kind, const char* type) {
    std::set<fs::path> names;
    std::error_code ignored;
    for (const auto& entry : fs::directory_iterator(saved_folder(model, kind), ignored)) {
      if (!entry.path().filename().string().starts_with(".")) names.insert(entry.path());
    }
    for (const fs::path& path : names) {
      const auto time = time_of(path);
      if (!time) continue;  // it was removed meanwhile
      const std::string id = fmt::format("{}/{}", kind, path.filename().string());
      all.push_back({{"checkpoint_id", id},
                     {"checkpoint_type", type},
                     {"time", *time},
                     {"tinker_path", fmt::format("tinker://{}/{}", model, id)},
                     {"size_bytes", train::bytes_below(path)},
                     {"public", false}});
    }
  };
  or_refuse(404, [&] {
    add("weights", "training");
    add("sampler_weights", "sampler");
  });
  return {{"checkpoints", std::move(all)}};
}

json::object Service::described_run(const std::string& id, const fs::path& newest) const {
  const auto session = sessions_.find(id.substr(0, id.find(':')));
  return {{"training_run_id", id},
          {"base_model", service_.model_name},
          {"model_owner", session == sessions_.end() ? "" : session->second.owner},
          {"corrupted", false},
          {"last_request_time", time_of(newest).value_or("")}};
}

json::object Service::run_of(const Model& model) const {
  const model::AdapterForm* adapter = model.trained ? model.trained->adapter() : nullptr;
  json::object run = described_run(model.id, service_.store);
  run["is_lora"] = adapter != nullptr;
  run["lora_rank"] = adapter != nullptr ? adapter->config.rank : 0;
  run["user_metadata"] = model.user_metadata;
  return run;
}

json::object Service::training_run(const std::string& model) {
  {
    const std::lock_guard lock(mutex_);
    if (const auto known = models_.find(model); known != models_.end())
      return run_of(*known->second);
  }
  const json::object listed = checkpoints(model);
  const json::array& saved = listed.at("checkpoints").get_array();
  if (saved.empty()) throw Refusal(404, fmt::format("training run {}: there is none", model));
  const std::string path(saved.front().at("tinker_path").get_string());
  return or_refuse(404, [&] {
    const fs::path directory = found(path);
    const json::object info = weights_info({{"tinker_path", path}});
    std::optional<json::object> metadata;
    if (fs::exists(directory / "run.json"))
      metadata = read_user_metadata(FieldReader(train::read_checkpoint(directory, 0).run, ""));
    const std::lock_guard lock(mutex_);
    json::object run = described_run(model, directory);
    run["is_lora"] = info.at("is_lora");
    run["lora_rank"] = info.at("lora_rank");
    if (metadata) run["user_metadata"] = *std::move(metadata);
    return run;
  });
}

json::object Service::training_runs(const std::string& owner) const {
  const std::lock_guard lock(mutex_);
  json::array runs;
  for (const auto& [id, model] : models_) {
    const auto session = sessions_.find(model->session);
    if (session == sessions_.end() || session->second.owner != owner) continue;
    runs.push_back(run_of(*model));
  }
  const auto count = runs.size();
  return {{"training_runs", std::move(runs)},
          {"cursor", {{"offset", 0}, {"limit", count}, {"total_count", count}}}};
}

json::object Service::delete_checkpoint(const std::string& path) {
  require_restored(path);
  const fs::path directory = or_refuse(404, [&] { return named_by(path); });
  const std::string saver = saver_of(path);
  SharedModel model;
  {
    const std::lock_guard lock(mutex_);
    if (const auto known = models_.find(saver); known != models_.end()) model = known->second;
  }
  std::unique_lock<std::mutex> saving;
  if (model) {
    saving = std::unique_lock(model->saving, std::try_to_lock);
    // A save may take minutes, and few threads answer all clients.
    if (!saving)
      throw Refusal(503, fmt::format("{} is being saved; delete again when it is", model->id));
  }
  const auto is_it = [&](const NamedSave& save) { return save.directory == directory; };
  std::error_code unknown;
  if (!saves_->has(is_it) && !fs::is_directory(directory, unknown))
    throw Refusal(404, fmt::format("path {}: there are no such weights", path));
  // One that could not be restored may be by the next process.
  const int64_t behind = model      ? model->num_done.load()
                         : journal_ ? journal_->last_request(saver)
                                    : 0;
  delete_saved(saver, directory, behind);
  return {};
}

void Service::delete_saved(const std::string& model, const fs::path& directory, int64_t behind) {
  const std::string name = directory.parent_path().filename() / directory.filename();
  // What the newest state is behind is not done again: a full disk holds up no deletion of that.
  const bool is_done_again = journal_ && behind > journal_->newest_state(model).first;
  if (is_done_again) journal_->note_deletion(model, name, behind);
  saves_->drop([&](const NamedSave& save) { return save.directory == directory; });
  const std::error_code error = remove_saved(directory);
  if (!error) return;
  if (is_done_again) journal_->take_back_deletion(model, name);
  throw Refusal(500, fmt::format("{}: {}", directory.string(), error.message()));
}

void Service::delete_again(Model& model, int64_t done) {
  while (!model.deleted.empty() && model.deleted.begin()->first <= done) {
    const fs::path directory = journal_->folder(model.id) / model.deleted.begin()->second;
    saves_->drop([&](const NamedSave& save) { return save.directory == directory; });
    if (const std::error_code error = remove_saved(directory))
      fmt::print(stderr, "slime tinker: {} was deleted before the restart, and cannot be: {}\n",
                 directory.string(), error.message());
    model.deleted.erase(model.deleted.begin());
  }
}

}  // namespace slime::tinker
