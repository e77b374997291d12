#include "train/checkpoint.h"

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <set>
#include <string_view>

#include "core/error.h"
#include "core/field_reader.h"
#include "model/adapter_files.h"
#include "model/foreign_checkpoint.h"
#include "model/safetensors.h"
#include "model/save.h"
#include "train/checkpoint_directory.h"
#include "train/run_parts.h"
#include "train/whole_tensors.h"

namespace slime::train {
namespace fs = std::filesystem;
namespace {

constexpr const char* kMasters = "master";  // of the actor; the critic's have a prefix

constexpr uint64_t kShardBytes = uint64_t{5} << 30;

/// A flat buffer of a part and the stem of its files; the words of torch.optim, which people know.
/// Of an optimizer's buffer each rank holds its shards.
struct StoredBuffer {
  RunPart part;
  std::string stem;
  HeldBuffer buffer;
  const model::Weights* layout;
  const Optimizer* owner = nullptr;  // of a buffer that is sharded

  bool is_whole() const { return buffer.tensors.front().size(0) == layout->num_elements(); }
  std::string folder() const { return row_of(part).folder; }
};

void add_whole(std::vector<StoredBuffer>& buffers, RunPart part, const Tensor& buffer_N,
               const model::Weights& layout) {
  check(row_of(part).held_by == HeldBy::kEachRank, "a part is held as its row says");
  buffers.push_back(
      {part, std::string(row_of(part).stems.front()), HeldBuffer::whole(buffer_N), &layout});
}

void add_optimizer(std::vector<StoredBuffer>& buffers, RunPart part, const std::string& prefix,
                   Optimizer& optimizer, const model::Weights& weights) {
  check(row_of(part).held_by == HeldBy::kShards, "a part is held as its row says");
  const auto add = [&](const char* name, Tensor OwnedShard::*tensor) {
    std::vector<Tensor> shards;
    for (const OwnedShard& own : optimizer.owned()) shards.push_back(own.*tensor);
    std::string stem = prefix + name;
    const auto& stems = row_of(part).stems;
    check(std::ranges::find(stems, stem) != stems.end(), "a part is saved as its row says");
    buffers.push_back(
        {part, std::move(stem), HeldBuffer::shards(std::move(shards)), &weights, &optimizer});
  };
  add("exp_avg", &OwnedShard::first_moment);
  add("exp_avg_sq", &OwnedShard::second_moment);
  if (optimizer.has_master()) add(kMasters, &OwnedShard::master);
}

/// What has to be kept besides the weights, by the parts that this trainer has: nothing that the
/// weight files hold already.
std::vector<StoredBuffer> stored_buffers(Trainer& trainer) {
  const model::Weights& weights = trainer.network().trained();
  std::vector<StoredBuffer> buffers;
  add_optimizer(buffers, RunPart::kOptimizer, "", trainer.optimizer(), weights);
  if (Critic* critic = trainer.critic()) {
    model::Weights& network = critic->network().weights();
    model::Weights& head = critic->head().weights();
    add_whole(buffers, RunPart::kCritic, network.flat(), network);
    add_whole(buffers, RunPart::kCriticHead, head.flat(), head);
    add_optimizer(buffers, RunPart::kCriticOptimizer, "", critic->network_optimizer(), network);
    add_optimizer(buffers, RunPart::kCriticOptimizer, "head_", critic->head_optimizer(), head);
  }
  if (trainer.old_actor() != nullptr) {
    add_whole(buffers, RunPart::kOldActor, trainer.old_actor()->trained().flat(), weights);
    add_whole(buffers, RunPart::kRolloutActor, trainer.rollout_actor(), weights);
  }
  if (trainer.reference() != nullptr)
    add_whole(buffers, RunPart::kReference, trainer.reference()->weights().flat(), weights);
  return buffers;
}

/// Those that a checkpoint gets.
std::vector<StoredBuffer> saved_buffers(Trainer& trainer, bool save_optimizer) {
  // The state on the host is that of the last update.
  trainer.wait_for_optimizers();
  std::vector<StoredBuffer> buffers = stored_buffers(trainer);
  const uint32_t flags = save_optimizer ? 0U : uint32_t{kNoSaveOptim};
  std::erase_if(buffers, [&](const StoredBuffer& stored) {
    // A reference that stands still is read from where it comes from.
    const bool is_known = stored.part == RunPart::kReference && !trainer.reference_moves();
    return is_known || !is_carried(row_of(stored.part), flags);
  });
  return buffers;
}

/// The layouts of a trainer's buffers over the ranks, each made once. All ranks ask for the same in the
/// same order.
class Layouts final {
 public:
  explicit Layouts(const comm::Mesh& mesh) : mesh_(mesh) {}
  const WholeTensors& of(const model::Weights& weights) {
    return known_.try_emplace(&weights, mesh_, weights).first->second;
  }

 private:
  const comm::Mesh& mesh_;
  std::map<const model::Weights*, WholeTensors> known_;
};

/// The whole tensors of a buffer, each brought when it is written.
std::vector<model::TensorToWrite> tensors_of(const WholeTensors& layout, const HeldBuffer& buffer) {
  std::vector<model::TensorToWrite> tensors;
  for (std::size_t i = 0; i < layout.entries().size(); ++i) {
    tensors.push_back({layout.entries()[i].name, layout.entries()[i].shape,
                       buffer.tensors.front().scalar_type(),
                       [&layout, i, buffer] { return layout.gather(i, buffer); }});
  }
  return tensors;
}

void give(const WholeTensors& layout, const HeldBuffer& buffer) {
  for (std::size_t i = 0; i < layout.entries().size(); ++i) layout.gather(i, buffer);
}

/// Files of a model directory that a checkpoint takes over: everything small that is not weights or
/// written by us.
bool is_companion(const fs::path& path) {
  static const std::set<std::string> kSuffixes{".json", ".jinja", ".txt", ".model", ".tiktoken"};
  const std::string name = path.filename().string();
  if (name == "config.json" || name == "run.json" || name.ends_with(".index.json")) return false;
  return kSuffixes.contains(path.extension().string());
}

void copy_companions(const fs::path& source, const fs::path& target) {
  if (source.empty()) return;
  for (const auto& entry : fs::directory_iterator(source)) {
    if (entry.is_regular_file() && is_companion(entry.path())) {
      fs::copy_file(entry.path(), target / entry.path().filename());
    }
  }
  // Templates besides the default one, as transformers lays them.
  const fs::path templates = source / "additional_chat_templates";
  if (!fs::is_directory(templates)) return;
  fs::create_directories(target / templates.filename());
  for (const auto& entry : fs::directory_iterator(templates)) {
    if (entry.is_regular_file() && entry.path().extension() == ".jinja")
      fs::copy_file(entry.path(), target / templates.filename() / entry.path().filename());
  }
}

json::object to_json(const TrainerState& state) {
  return {{"num_updates", state.num_updates},
          {"num_steps", state.num_steps},
          {"samples_done", state.samples_done},
          {"rollouts_done", state.rollouts_done},
          {"skipped_in_a_row", state.skipped_in_a_row},
          {"critic_skipped_in_a_row", state.critic_skipped_in_a_row},
          {"critic_updates", state.critic.num_updates},
          {"critic_samples_done", state.critic.samples_done}};
}

TrainerState state_from(const FieldReader& fields) {
  const auto integer = [&](const char* key) { return *fields.required().integer(key); };
  TrainerState state;
  state.num_updates = integer("num_updates");
  state.num_steps = integer("num_steps");
  state.samples_done = integer("samples_done");
  state.rollouts_done = integer("rollouts_done");
  if (fields.has("skipped_in_a_row")) state.skipped_in_a_row = integer("skipped_in_a_row");
  if (fields.has("critic_skipped_in_a_row"))
    state.critic_skipped_in_a_row = integer("critic_skipped_in_a_row");
  if (fields.has("critic_updates"))
    state.critic = {integer("critic_updates"), integer("critic_samples_done")};
  return state;
}

/// Files of a sharded or single stem.
std::vector<fs::path> files_of(const fs::path& directory, const std::string& stem) {
  std::vector<fs::path> files;
  if (!fs::is_directory(directory)) return files;
  for (const auto& entry : fs::directory_iterator(directory)) {
    const std::string name = entry.path().filename().string();
    const bool is_single = name == stem + ".safetensors";
    if (is_single || (name.starts_with(stem + "-") && name.ends_with(".safetensors")))
      files.push_back(entry.path());
  }
  return files;
}

/// Where the tensors of a buffer lie in a checkpoint's files.
struct StoredTensors {
  struct Place {
    const model::NamedWeight* weight = nullptr;
    std::size_t file = 0;
    model::StoredTensor tensor;
  };
  std::vector<model::SafetensorsFile> files;
  std::vector<Place> places;
};

/// Throws ConfigError for those that are missing or of another shape.
StoredTensors find_tensors(const fs::path& checkpoint, const StoredBuffer& stored) {
  const fs::path directory = checkpoint / stored.folder();
  const model::Weights& weights = *stored.layout;
  std::set<std::string> missing;
  for (const model::NamedWeight& weight : weights.tensors()) missing.insert(weight.name);
  std::vector<std::string> problems;
  if (stored.stem == kMasters) check_has_masters(checkpoint);
  StoredTensors found;
  for (const fs::path& path : files_of(directory, stored.stem)) {
    const model::SafetensorsFile& file = found.files.emplace_back(path);
    for (const model::NamedWeight& weight : weights.tensors()) {
      const auto tensor = file.tensors().find(weight.name);
      if (tensor == file.tensors().end()) continue;
      missing.erase(weight.name);
      if (tensor->second.shape != weight.full_shape) {
        problems.push_back(fmt::format("{}: {} has shape [{}], the model needs [{}]", path.string(),
                                       weight.name, fmt::join(tensor->second.shape, ", "),
                                       fmt::join(weight.full_shape, ", ")));
        continue;
      }
      found.places.push_back({&weight, found.files.size() - 1, tensor->second});
    }
  }
  for (const std::string& name : missing) {
    problems.push_back(fmt::format("{}: no {} of {}", directory.string(), stored.stem, name));
  }
  if (!missing.empty() && !found.places.empty()) {
    problems.push_back(directory.string() +
                       ": is of a run that trained fewer tensors, such as one without "
                       "--enable-mtp-training; --no-load-optim begins with zero moments");
  }
  if (!problems.empty()) throw ConfigError(problems);
  return found;
}

void read_buffer(const StoredTensors& found, const StoredBuffer& stored) {
  const model::Weights& weights = *stored.layout;
  const Tensor& held = stored.buffer.tensors.front();
  const Tensor whole_N =
      stored.is_whole() ? held : at::zeros({weights.num_elements()}, held.options());
  for (const StoredTensors::Place& place : found.places) {
    found.files[place.file].read(place.tensor, place.weight->slices,
                                 model::Weights::view(whole_N, *place.weight));
  }
  if (stored.is_whole()) return;
  const std::vector<Tensor> shards = stored.owner->own_shards_of(whole_N);
  for (std::size_t i = 0; i < shards.size(); ++i) {
    const Tensor shard = stored.buffer.tensors[i];
    shard.copy_(shards[i]);
  }
}

/// Whether a checkpoint has files of a part.
bool has_part(const fs::path& checkpoint, RunPart part) {
  const PartRow& row = row_of(part);
  return std::ranges::any_of(row.stems, [&](std::string_view stem) {
    return !files_of(checkpoint / row.folder, std::string(stem)).empty();
  });
}

/// What a trainer gets of a checkpoint, found and checked, nothing read yet.
struct Restoring {
  std::vector<std::pair<StoredBuffer, StoredTensors>> buffers;
  std::set<RunPart> parts;
};

Restoring find_parts(const Checkpoint& checkpoint, Trainer& trainer, uint32_t left_out,
                     const Warn& warn) {
  Restoring restoring;
  std::set<RunPart> told, stored_here;
  for (const StoredBuffer& stored : stored_buffers(trainer)) {
    const PartRow& row = row_of(stored.part);
    stored_here.insert(stored.part);
    if (!is_carried(row, left_out)) continue;  // said by forgotten()
    if (has_part(checkpoint.directory, stored.part)) {
      restoring.buffers.emplace_back(stored, find_tensors(checkpoint.directory, stored));
      restoring.parts.insert(stored.part);
      continue;
    }
    if (!row.may_be_missing) {
      throw ConfigError(
          fmt::format("{} does not have {}", checkpoint.directory.string(), row.name));
    }
    const bool is_expected = stored.part == RunPart::kReference && !trainer.reference_moves();
    if (!is_expected && told.insert(stored.part).second) {
      warn(fmt::format("{} does not have {}; the run goes on with {}",
                       checkpoint.directory.string(), row.name, row.begins));
    }
  }
  if (restoring.parts.contains(RunPart::kReference) && !trainer.reference_moves()) {
    warn(
        fmt::format("{} has a reference that had moved with --ref-update-interval: the run goes "
                    "on with it, not with the model of --ref-load",
                    checkpoint.directory.string()));
  }
  for (const PartRow& row : run_parts()) {
    const bool is_file = row.part != RunPart::kWeights && *row.folder != '\0';
    const bool is_here = stored_here.contains(row.part);
    if (is_file && !is_here && is_carried(row, left_out) &&
        has_part(checkpoint.directory, row.part)) {
      warn(fmt::format("{} has {}, which this run has no use for and will not save",
                       checkpoint.directory.string(), row.name));
    }
  }
  return restoring;
}

}  // namespace

void check_has_masters(const fs::path& checkpoint) {
  const fs::path directory = checkpoint / row_of(RunPart::kOptimizer).folder;
  if (files_of(directory, "exp_avg").empty() || !files_of(directory, kMasters).empty()) return;
  throw ConfigError(fmt::format(
      "{}: has no master weights, as runs with --fp32 have none: go on with --fp32, or with "
      "--no-load-optim, which begins with the weights as they are saved and with zero moments",
      checkpoint.string()));
}

Checkpoint read_checkpoint(const fs::path& directory, int64_t iteration) {
  Checkpoint checkpoint;
  checkpoint.directory = directory;
  checkpoint.iteration = iteration;
  const fs::path path = directory / "run.json";
  const json::value run = read_json_file(path);
  if (!run.is_object()) throw ConfigError(path.string() + ": must hold a JSON object");
  const FieldReader fields = FieldReader(run.get_object(), path.string() + ": ").required();
  checkpoint.run = *fields.object("run");
  checkpoint.trainer = state_from(*fields.fields("trainer"));
  return checkpoint;
}

fs::path save_checkpoint(const CheckpointConfig& config, int64_t iteration, Trainer& trainer,
                         const json::object& run) {
  const auto fill = [&](const fs::path& directory) {
    copy_companions(config.model_source, directory);
    Layouts layouts(trainer.mesh());
    const model::Weights& weights = trainer.network().trained();
    const model::Adapters* adapters = trainer.network().adapters();
    // The ranks exchange in the order of join_save().
    std::vector<model::NamedConstant> constants;
    if (adapters == nullptr) constants = whole_constants(trainer.mesh(), weights);
    std::vector<model::TensorToWrite> tensors =
        tensors_of(layouts.of(weights), HeldBuffer::whole(weights.flat()));
    if (adapters != nullptr) {
      model::write_adapter(directory, adapters->at(0)->form(), tensors);
    } else {
      model::save_network(trainer.network(), std::move(tensors), constants, directory);
    }
    for (const StoredBuffer& stored : saved_buffers(trainer, config.save_optimizer)) {
      fs::create_directories(directory / stored.folder());
      model::write_sharded(directory / stored.folder(), stored.stem,
                           tensors_of(layouts.of(*stored.layout), stored.buffer), kShardBytes);
    }
    model::write_file(directory / "run.json", to_pretty_json(run_file(trainer, iteration, run)));
  };
  return write_checkpoint_directory(config.root, iteration, fill);
}

json::object run_file(const Trainer& trainer, int64_t iteration, const json::object& run) {
  return {{"version", 1},
          {"iteration", iteration},
          {"trainer", to_json(trainer.state())},
          {"run", run}};
}

fs::path save_adapter(const CheckpointConfig& config, const model::AdapterTensors& tensors,
                      const json::object& run_file) {
  return write_checkpoint_directory(config.root, 0, [&](const fs::path& directory) {
    copy_companions(config.model_source, directory);
    model::write_adapter(directory, tensors);
    model::write_file(directory / "run.json", to_pretty_json(run_file));
  });
}

void join_save(Trainer& trainer, bool save_optimizer) {
  if (trainer.mesh().world().is_alone()) return;
  Layouts layouts(trainer.mesh());
  const model::Weights& weights = trainer.network().trained();
  if (trainer.network().adapters() == nullptr) whole_constants(trainer.mesh(), weights);
  give(layouts.of(weights), HeldBuffer::whole(weights.flat()));
  for (const StoredBuffer& stored : saved_buffers(trainer, save_optimizer))
    give(layouts.of(*stored.layout), stored.buffer);
}

std::optional<Checkpoint> find_checkpoint(const fs::path& root, const Warn& warn) {
  std::vector<int64_t> iterations = checkpoint_iterations(root);
  if (iterations.empty()) return std::nullopt;
  std::vector<std::string> problems;
  while (!iterations.empty()) {
    const fs::path directory = root / checkpoint_name(iterations.back());
    const std::string damage = checkpoint_damage(directory);
    if (damage.empty()) return read_checkpoint(directory, iterations.back());
    if (const std::string foreign = model::foreign_checkpoint(directory); !foreign.empty())
      throw ConfigError(fmt::format("{} is {}", directory.string(), foreign));
    problems.push_back(fmt::format("{} is damaged: {}", directory.string(), damage));
    iterations.pop_back();
    if (!iterations.empty()) {
      warn(fmt::format("{}; falling back to {}", problems.back(),
                       checkpoint_name(iterations.back())));
    }
  }
  problems.push_back(fmt::format(
      "no checkpoint under {} is whole; to start over, give another --run-dir, or --overwrite to "
      "delete them",
      root.string()));
  throw ConfigError(problems);
}

void check_restorable(const Checkpoint& checkpoint, Trainer& trainer, uint32_t left_out,
                      const Warn& warn) {
  find_parts(checkpoint, trainer, left_out, warn);
}

void restore_trainer(const Checkpoint& checkpoint, Trainer& trainer, uint32_t left_out,
                     const Warn& warn) {
  const Restoring restoring = find_parts(checkpoint, trainer, left_out, warn);
  const std::set<RunPart>& restored = restoring.parts;
  for (const auto& [stored, found] : restoring.buffers) read_buffer(found, stored);
  if (restored.contains(RunPart::kReference) && !trainer.reference_moves())
    trainer.keep_reference();
  // Counters of an optimizer belong to its moments: zero moments at a late step would be corrected
  // for as if they had been averaged.
  TrainerState state = trainer.state();
  const TrainerState& saved = checkpoint.trainer;
  if (restored.contains(RunPart::kOptimizer)) state.num_updates = saved.num_updates;
  if (restored.contains(RunPart::kCriticOptimizer))
    state.critic.num_updates = saved.critic.num_updates;
  if (is_carried(row_of(RunPart::kSchedule), left_out)) {
    state.samples_done = saved.samples_done;
    state.critic.samples_done = saved.critic.samples_done;
  }
  if (is_carried(row_of(RunPart::kCounters), left_out)) {
    state.num_steps = saved.num_steps;
    state.rollouts_done = saved.rollouts_done;
    state.skipped_in_a_row = saved.skipped_in_a_row;
    state.critic_skipped_in_a_row = saved.critic_skipped_in_a_row;
  }
  trainer.set_state(state);
}

}  // namespace slime::train
