#include "model/adapters.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <utility>

#include "core/error.h"
#include "kernels/device.h"

namespace slime::model {

namespace {

/// Of several slots on a GPU.
const kernels::AdapterTables* tables_of(Network& network, int64_t num_slots) {
  if (num_slots == 1) return nullptr;
  return dynamic_cast<const kernels::AdapterTables*>(
      &kernels::kernels_for(network.weights().flat()));
}

/// Whether kernels find these pairs of one slot in the device's tables: not those of experts and embeddings.
bool are_in_tables(const Weights::Parameter& parameter,
                   const std::vector<const kernels::LowRankPair*>& pairs) {
  return pairs.empty() || (parameter.vector == nullptr && pairs.front()->experts == 0);
}

}  // namespace

Adapters::Adapters(Network& network, int64_t num_slots)
    : Adapters(network, num_slots, tables_of(network, num_slots)) {}

Adapters::Adapters(Network& network, int64_t num_slots, const kernels::AdapterTables* tables)
    : network_(network), tables_(tables), slots_(static_cast<size_t>(num_slots)) {
  const Weights& base = network.weights();
  if (!kernels::kernels_for(base.flat()).has_adapters())
    throw ConfigError("this device has no products with adapters: use --device cpu or cuda");
  if (num_slots > 1 && !base.flat().is_cpu() && base.flat().element_size() != 2)
    throw ConfigError("several adapters on a GPU need a model in bfloat16 or float16");
  for (const Weights::Parameter& parameter : base.parameters()) {
    of_parameter_.push_back(std::make_unique<kernels::MatrixAdapters>());
    of_parameter_.back()->rows = &rows_;
    of_parameter_.back()->of_slot.resize(slots_.size());
    if (parameter.matrix != nullptr) parameter.matrix->matrix.adapters = nullptr;
  }
}

void Adapters::check_fits(const AdapterTensors& tensors) const {
  check(tensors.saved_.empty() || slots_.size() == 1, "saved modules are of the only adapter");
  const bool is_on_gpu = !network_.weights().flat().is_cpu();
  if (is_on_gpu && slots_.size() > 1) check_rows_choose_on_gpu(tensors.form());
  if (tables_ == nullptr) return;
  std::map<size_t, std::vector<const kernels::LowRankPair*>> of_parameter;
  for (const AdapterTensors::Pair& pair : tensors.pairs_) {
    if (are_in_tables(network_.weights().parameters()[pair.parameter], {&pair.pair}))
      of_parameter[pair.parameter].push_back(&pair.pair);
  }
  for (const auto& [parameter, pairs] : of_parameter) tables_->check_pairs(pairs);
}

bool Adapters::is_in_tables(const AdapterTensors& tensors) const {
  return tables_ != nullptr && tensors.saved_.empty() &&
         std::ranges::all_of(tensors.pairs_, [&](const AdapterTensors::Pair& pair) {
           return are_in_tables(network_.weights().parameters()[pair.parameter], {&pair.pair});
         });
}

void Adapters::put(const std::vector<Change>& changes) {
  for (const Change& change : changes)
    if (change.tensors) check_fits(*change.tensors);
  set_on(true);
  const std::vector<Weights::Parameter>& parameters = network_.weights().parameters();
  std::vector<bool> is_read(of_parameter_.size());  // by recorded passes themselves
  for (const Change& change : changes) {
    const auto place = static_cast<size_t>(change.slot);
    const auto note_read = [&] {
      for (size_t i = 0; i < of_parameter_.size(); ++i)
        if (!are_in_tables(parameters[i], of_parameter_[i]->of_slot[place])) is_read[i] = true;
    };
    note_read();  // what leaves
    for (const auto& of_parameter : of_parameter_) of_parameter->of_slot[place].clear();
    slots_[place] = change.tensors;
    if (!slots_[place]) continue;
    for (AdapterTensors::Pair& pair : slots_[place]->pairs_)
      of_parameter_[pair.parameter]->of_slot[place].push_back(&pair.pair);
    note_read();
  }
  std::vector<kernels::MatrixAdapters*> placed;
  for (size_t i = 0; i < of_parameter_.size(); ++i) {
    const Weights::Parameter& parameter = parameters[i];
    const auto& of_slot = of_parameter_[i]->of_slot;
    const bool has_some =
        std::ranges::any_of(of_slot, [](const auto& pairs) { return !pairs.empty(); });
    const kernels::MatrixAdapters* adapters = has_some ? of_parameter_[i].get() : nullptr;
    const kernels::MatrixAdapters*& pointer = parameter.matrix != nullptr
                                                  ? parameter.matrix->matrix.adapters
                                                  : parameter.vector->adapters;
    if (std::exchange(pointer, adapters) != adapters) ++num_changes_;
    if (tables_ == nullptr) continue;
    if (is_read[i]) {
      ++num_changes_;
    } else if (std::ranges::all_of(
                   of_slot, [&](const auto& pairs) { return are_in_tables(parameter, pairs); })) {
      placed.push_back(of_parameter_[i].get());
    }
  }
  if (!placed.empty() && tables_->place_pairs(placed)) ++num_changes_;
  point_saved();
}

void Adapters::set_on(bool on) {
  rows_.is_on = on;
  point_saved();
}

/// Parameters of the network at their trained copies, or at its own numbers.
void Adapters::point_saved() {
  if (!slots_.front()) return;
  for (const AdapterTensors::Saved& saved : slots_.front()->saved_) {
    const Weights::Parameter& parameter = network_.weights().parameters()[saved.parameter];
    const Tensor& values = rows_.is_on ? saved.copy.value : saved.base;
    parameter.point_at(values.view(saved.base.sizes()));
    const Tensor& grad = saved.copy.grad;
    parameter.set_grad(rows_.is_on && grad.defined() ? grad.view(saved.base.sizes()) : Tensor());
  }
}

void Adapters::begin(const TokenBatch& batch) {
  point_saved();
  rows_.pass = at::GradMode::is_enabled() ? ++num_passes_ : 0;
  if (batch.adapter_T.defined()) return take(batch.adapter_T);
  if (rows_.tiles.defined()) return;
  check(!chooses_by_row_, "each row of a batch says which adapter it takes");
  rows_.shares = {{slots_.front() ? 0 : -1, {}}};
}

void Adapters::take(const Tensor& slot_R) {
  std::map<int64_t, std::vector<int64_t>> rows;
  const auto* slots = slot_R.const_data_ptr<int64_t>();
  for (int64_t row = 0; row < slot_R.numel(); ++row) {
    if (slots[row] >= 0) rows[slots[row]].push_back(row);
  }
  rows_.shares.clear();
  for (const auto& [slot, of_slot] : rows) {
    check(slot < num_slots() && at(slot) != nullptr, "a row takes a slot that has an adapter");
    const bool are_all = static_cast<int64_t>(of_slot.size()) == slot_R.numel();
    rows_.shares.push_back({slot, are_all ? Tensor() : at::tensor(of_slot, at::kLong)});
  }
}

void check_rows_choose_on_gpu(const AdapterForm& form) {
  std::vector<std::string> without;
  for (const AdapterForm::Pair& pair : form.pairs) {
    if (pair.module.ends_with(".kv_b_proj")) without.push_back(pair.module);
  }
  if (without.empty()) return;
  throw ConfigError(
      fmt::format("{} of {} modules have no products with several adapters in a batch on a GPU "
                  "yet, such as {}: "
                  "adapt other modules, or compute on the CPU",
                  without.size(), form.pairs.size(), without.front()));
}

void add_adapters(Network& network, const AdapterForm& form, const comm::Mesh& mesh) {
  auto adapters = std::make_shared<Adapters>(network, 1);
  adapters->put(0,
                std::make_shared<AdapterTensors>(network.config(), network.weights(), form, mesh));
  network.set_adapters(std::move(adapters));
}

std::unique_ptr<Network> with_another_adapter(Network& network, Precision precision,
                                              const comm::Mesh& mesh) {
  precision.shared = &network.weights();
  std::unique_ptr<Network> other = make_blank_network(network.config(), precision, mesh);
  add_adapters(*other, network.adapters()->at(0)->form(), mesh);
  return other;
}

}  // namespace slime::model
