#include "model/adapter_tensors.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <regex>
#include <span>

#include "core/error.h"
#include "core/random.h"
#include "core/xxhash64.h"
#include "kernels/cpu/processor.h"
#include "model/weights_builder.h"

namespace slime::model {
namespace {

using Component = Weights::Builder::Component;

constexpr const char* kOfPeft = "base_model.model.";

std::string module_of(const std::string& tensor) {
  constexpr std::string_view kTail = ".weight";
  return tensor.ends_with(kTail) ? tensor.substr(0, tensor.size() - kTail.size()) : tensor;
}

/// Slices of dimension `from`, as those of dimension `to`.
std::vector<Slice> slices_of(const NamedWeight& weight, int from, int to) {
  std::vector<Slice> moved;
  for (Slice slice : weight.slices.all()) {
    if (slice.dim != from) continue;
    slice.dim = to;
    moved.push_back(slice);
  }
  return moved;
}

bool is_sliced(const NamedWeight& weight, int dim) {
  return std::ranges::any_of(weight.slices.all(),
                             [dim](const Slice& slice) { return slice.dim == dim; });
}

/// Of a layer's experts in files that have a tensor for each matrix of each.
struct ExpertName {
  std::string prefix;  // "model.layers.0.mlp.experts"
  int64_t expert = 0;
  std::string matrix;  // "up_proj"
};
std::optional<ExpertName> expert_of(const std::string& module) {
  if (module.find(".experts.") == std::string::npos) return std::nullopt;  // an expression is slow
  static const std::regex kExpert(R"((.*\.experts)\.(\d+)\.([^.]+))");
  std::smatch found;
  if (!std::regex_match(module, found, kExpert)) return std::nullopt;
  return ExpertName{found[1], std::stoll(found[2]), found[3]};
}

}  // namespace

/// Goes over the network's parameters and adds the tensors of their pairs.
class AdapterTensors::Maker {
 public:
  Maker(AdapterTensors& tensors, const ModelConfig& config, const Weights& base,
        const comm::Mesh& mesh)
      : tensors_(tensors), config_(config), base_(base), mesh_(mesh), builder_(tensors.weights_) {}

  void make() {
    for (size_t i = 0; i < base_.parameters().size(); ++i) add(i);
    if (!problems_.empty()) throw ConfigError(problems_);
    if (tensors_.pairs_.empty() && tensors_.saved_.empty())
      throw ConfigError("a rank's layers have no adapters: choose targets in each pipeline stage");
    const bool is_double = base_.flat().scalar_type() == at::kDouble;
    const at::ScalarType type = is_double ? at::kDouble : at::kFloat;
    builder_.allocate({.weights = type, .activations = type, .device = base_.flat().device()});
  }

 private:
  const AdapterForm& form() const { return tensors_.form_; }
  std::span<const NamedWeight> weights_of(const Weights::Parameter& parameter) const {
    return std::span(base_.tensors()).subspan(parameter.first, parameter.end - parameter.first);
  }

  void add(size_t index) {
    const Weights::Parameter& parameter = base_.parameters()[index];
    const auto weights = weights_of(parameter);
    if (parameter.is_tied) {
      NamedWeight head = weights.front();
      head.name = "lm_head.weight";
      if (form().saves(head.name)) return add_saved(index, std::span(&head, 1));
      return add_matrix(index, head, 0, head.shape[0]);
    }
    const auto is_saved = [&](const NamedWeight& weight) { return form().saves(weight.name); };
    if (std::ranges::any_of(weights, is_saved)) {
      if (std::ranges::all_of(weights, is_saved)) return add_saved(index, weights);
      problems_.push_back(fmt::format(
          "modules_to_save: {} is one matrix with others here: save all of them, or none",
          weights.front().name));
      return;
    }
    if (parameter.vector != nullptr) return add_embedding(index, weights);
    if (weights.front().full_shape.size() == 3) return add_stack(index, weights.front());
    if (expert_of(module_of(weights.front().name))) return add_experts(index, weights);
    int64_t row = 0;
    for (const NamedWeight& weight : weights) {
      add_matrix(index, weight, row, row + weight.shape[0]);
      row += weight.shape[0];
    }
  }

  kernels::LowRankPair& new_pair(size_t index, int64_t begin, int64_t end, double scale) {
    tensors_.pairs_.push_back({index, {}});
    kernels::LowRankPair& pair = tensors_.pairs_.back().pair;
    pair.begin = begin;
    pair.end = end;
    pair.scale = scale;
    pair.number = tensors_.pairs_.size();
    return pair;
  }

  static int64_t room_of(const Weights::Parameter& parameter, const NamedWeight& weight) {
    if (parameter.room == 0 || weight.shape.size() != 2) return 0;
    return parameter.room / weight.shape[1];
  }

  void add_matrix(size_t index, const NamedWeight& weight, int64_t begin, int64_t end) {
    const std::string module = module_of(weight.name);
    const AdapterForm::Pair* wanted = form().find(module);
    if (wanted == nullptr) return;
    const bool by_outputs = is_sliced(weight, 0), by_inputs = is_sliced(weight, 1),
               as_base = !by_outputs && !by_inputs && weight.has_partial_grad;
    kernels::LowRankPair& pair = new_pair(index, begin, end, wanted->scale);
    builder_.add(pair.a, {{.name = kOfPeft + module + ".lora_A.weight",
                           .full_shape = {wanted->rank, weight.full_shape[1]},
                           .slices = Slices(slices_of(weight, 1, 1)),
                           .has_partial_grad = by_outputs || as_base}});
    builder_.add(pair.b, {{.name = kOfPeft + module + ".lora_B.weight",
                           .full_shape = {weight.full_shape[0], wanted->rank},
                           .slices = Slices(slices_of(weight, 0, 0)),
                           .has_partial_grad = by_inputs || as_base,
                           .room_rows = room_of(base_.parameters()[index], weight)}});
  }

  void add_embedding(size_t index, std::span<const NamedWeight> weights) {
    const NamedWeight& weight = weights.front();
    const std::string module = module_of(weight.name);
    const AdapterForm::Pair* wanted = form().find(module);
    // The last stage has it for the output layer alone.
    if (wanted == nullptr || mesh_.at().pp != 0) return;
    const bool is_sliced_by_ids = is_sliced(weight, 0);
    if (is_sliced_by_ids && weight.full_shape[0] % mesh_.tp().size() != 0) {
      problems_.push_back(fmt::format(
          "{}: an adapter of the embedding needs a vocabulary that tensor parallelism divides",
          module));
      return;
    }
    kernels::LowRankPair& pair = new_pair(index, 0, weight.shape[1], wanted->scale);
    builder_.add(pair.a, {{.name = kOfPeft + module + ".lora_embedding_A",
                           .full_shape = {wanted->rank, weight.full_shape[0]},
                           .slices = Slices(slices_of(weight, 0, 1)),
                           .has_partial_grad = !is_sliced_by_ids && weight.has_partial_grad}});
    builder_.add(pair.b, {{.name = kOfPeft + module + ".lora_embedding_B",
                           .full_shape = {weight.full_shape[1], wanted->rank},
                           .slices = {},
                           .has_partial_grad = is_sliced_by_ids || weight.has_partial_grad}});
  }

  /// What pairs of experts are to the ranks.
  struct ExpertPlace {
    bool is_own = false;      // of this rank's experts, which others have not
    bool is_partial = false;  // whole tensors of sliced experts have a part of their gradient
  };
  ExpertPlace place_of(const NamedWeight& weight, bool is_sliced_by_width) {
    if (!is_sliced_by_width) return {weight.is_of_own_expert, weight.has_partial_grad};
    if (!mesh_.ep().is_alone()) {
      problems_.push_back(fmt::format(
          "{}: adapters of experts that are both divided and sliced (expert and expert tensor "
          "parallelism) are not supported: use --expert-tensor-parallel-size 1",
          weight.name));
    }
    return {false, true};
  }

  /// All experts of a layer in one tensor: [E, O, I], or [E, I, O] where they are turned.
  void add_stack(size_t index, const NamedWeight& weight) {
    const AdapterForm::Pair* wanted = form().find(weight.name);
    if (wanted == nullptr) return;
    const bool is_turned = config_.experts.are_in_turns;
    const int output = is_turned ? 2 : 1, input = is_turned ? 1 : 2;
    const bool by_outputs = is_sliced(weight, output), by_inputs = is_sliced(weight, input);
    const ExpertPlace place = place_of(weight, by_outputs || by_inputs);
    const auto with_experts = [&](std::vector<Slice> slices) {
      std::vector<Slice> all = slices_of(weight, 0, 0);
      all.insert(all.end(), slices.begin(), slices.end());
      return Slices(std::move(all));
    };
    add_expert_pair(
        index, weight.name, *wanted, place, {0, weight.shape[static_cast<size_t>(output)]},
        {weight.full_shape[0], weight.full_shape[static_cast<size_t>(output)],
         weight.full_shape[static_cast<size_t>(input)]},
        with_experts(slices_of(weight, input, 2)), with_experts(slices_of(weight, output, 1)),
        by_outputs, by_inputs, weight.shape[0]);
  }

  struct StackShape {
    int64_t experts, outputs, inputs;
  };

  void add_expert_pair(size_t index, const std::string& module, const AdapterForm::Pair& wanted,
                       const ExpertPlace& place, const comm::Range& outputs,
                       const StackShape& shape, const Slices& of_a, const Slices& of_b,
                       bool by_outputs, bool by_inputs, int64_t own_experts) {
    kernels::LowRankPair& pair = new_pair(index, outputs.begin, outputs.end, wanted.scale);
    pair.experts = own_experts;
    builder_.add(pair.a, {{.name = kOfPeft + module + ".lora_A.weight",
                           .full_shape = {shape.experts, wanted.rank, shape.inputs},
                           .slices = of_a,
                           .has_partial_grad = place.is_partial && by_outputs,
                           .is_of_own_expert = place.is_own}});
    builder_.add(pair.b, {{.name = kOfPeft + module + ".lora_B.weight",
                           .full_shape = {shape.experts, shape.outputs, wanted.rank},
                           .slices = of_b,
                           .has_partial_grad = place.is_partial && by_inputs,
                           .is_of_own_expert = place.is_own}});
  }

  /// A tensor for each matrix of each expert: [gate; up] of each, or down of each.
  void add_experts(size_t index, std::span<const NamedWeight> weights) {
    const ExpertName first = *expert_of(module_of(weights.front().name));
    size_t per_expert = 1;
    while (per_expert < weights.size() &&
           expert_of(module_of(weights[per_expert].name))->expert == first.expert)
      ++per_expert;
    const auto own_experts = static_cast<int64_t>(weights.size() / per_expert);
    add_fused_experts(index, weights.first(per_expert), first, own_experts);
    int64_t row = 0;
    for (size_t j = 0; j < per_expert; ++j) {
      const NamedWeight& weight = weights[j];
      std::vector<const NamedWeight*> each;
      for (size_t i = j; i < weights.size(); i += per_expert) each.push_back(&weights[i]);
      add_each_expert(index, each, {row, row + weight.shape[0]});
      row += weight.shape[0];
    }
  }

  void add_each_expert(size_t index, const std::vector<const NamedWeight*>& each,
                       const comm::Range& outputs) {
    const AdapterForm::Pair* wanted = nullptr;
    int64_t num_wanted = 0;
    for (const NamedWeight* weight : each) {
      const AdapterForm::Pair* of_one = form().find(module_of(weight->name));
      if (of_one == nullptr) continue;
      ++num_wanted;
      if (wanted != nullptr && (of_one->rank != wanted->rank || of_one->scale != wanted->scale)) {
        problems_.push_back(
            fmt::format("{} and {} have other ranks or scales: experts of a layer "
                        "have the same",
                        wanted->module, of_one->module));
        return;
      }
      wanted = of_one;
    }
    if (wanted == nullptr) return;
    if (num_wanted < static_cast<int64_t>(each.size())) {
      problems_.push_back(fmt::format("{} has an adapter and other experts of its layer have none",
                                      wanted->module));
      return;
    }
    const NamedWeight& first = *each.front();
    const bool by_outputs = is_sliced(first, 0), by_inputs = is_sliced(first, 1);
    const ExpertPlace place = place_of(first, by_outputs || by_inputs);
    std::vector<Component> a, b;
    for (const NamedWeight* weight : each) {
      const std::string module = module_of(weight->name);
      a.push_back({.name = kOfPeft + module + ".lora_A.weight",
                   .full_shape = {wanted->rank, weight->full_shape[1]},
                   .slices = Slices(slices_of(*weight, 1, 1)),
                   .has_partial_grad = place.is_partial && by_outputs,
                   .is_of_own_expert = place.is_own});
      b.push_back({.name = kOfPeft + module + ".lora_B.weight",
                   .full_shape = {weight->full_shape[0], wanted->rank},
                   .slices = Slices(slices_of(*weight, 0, 0)),
                   .has_partial_grad = place.is_partial && by_inputs,
                   .is_of_own_expert = place.is_own});
    }
    kernels::LowRankPair& pair = new_pair(index, outputs.begin, outputs.end, wanted->scale);
    pair.experts = static_cast<int64_t>(each.size());
    builder_.add(pair.a, std::move(a));
    builder_.add(pair.b, std::move(b));
  }

  /// One pair for all experts, whose tensors files have apart: gate and up share A.
  void add_fused_experts(size_t index, std::span<const NamedWeight> of_first,
                         const ExpertName& first, int64_t own_experts) {
    const bool is_down = of_first.size() == 1;
    const std::string module = first.prefix + (is_down ? ".down_proj" : ".gate_up_proj");
    const AdapterForm::Pair* wanted = form().find(module);
    if (wanted == nullptr) return;
    const NamedWeight& weight = of_first.front();
    const bool by_outputs = is_sliced(weight, 0), by_inputs = is_sliced(weight, 1);
    const ExpertPlace place = place_of(weight, by_outputs || by_inputs);
    const int64_t count = config_.experts.count;
    std::vector<Slice> of_a, of_b;
    if (own_experts < count) {
      of_a.push_back({0, first.expert, first.expert + own_experts});
      of_b.push_back(of_a.front());
    }
    for (const Slice& slice : slices_of(weight, 1, 2)) of_a.push_back(slice);
    int64_t outputs = 0, own_outputs = 0;
    for (const NamedWeight& part : of_first) {
      for (const Slice& slice : slices_of(part, 0, 1)) of_b.push_back(shifted(slice, outputs));
      outputs += part.full_shape[0];
      own_outputs += part.shape[0];
    }
    add_expert_pair(index, module, *wanted, place, {0, own_outputs},
                    {count, outputs, weight.full_shape[1]}, Slices(std::move(of_a)),
                    Slices(std::move(of_b)), by_outputs, by_inputs, own_experts);
  }

  void add_saved(size_t index, std::span<const NamedWeight> weights) {
    tensors_.saved_.push_back({index, {}, {}});
    std::vector<Component> components;
    for (const NamedWeight& weight : weights) {
      components.push_back({.name = kOfPeft + weight.name,
                            .full_shape = weight.full_shape,
                            .slices = weight.slices,
                            .has_partial_grad = weight.has_partial_grad,
                            .is_on_two_stages = weight.is_on_two_stages,
                            .is_of_own_expert = weight.is_of_own_expert});
    }
    builder_.add(tensors_.saved_.back().copy, std::move(components));
  }

  AdapterTensors& tensors_;
  const ModelConfig& config_;
  const Weights& base_;
  const comm::Mesh& mesh_;
  Weights::Builder builder_;
  std::vector<std::string> problems_;
};

AdapterTensors::AdapterTensors(const ModelConfig& config, const Weights& base,
                               const AdapterForm& form, const comm::Mesh& mesh)
    : form_(form) {
  Maker(*this, config, base, mesh).make();
  const at::NoGradGuard no_grad;
  const bool is_narrow = base.flat().is_cpu() && base.flat().scalar_type() == at::kBFloat16 &&
                         kernels::cpu::has_tiles();
  if (!saved_.empty() && is_narrow) {
    throw ConfigError(
        fmt::format("modules_to_save: {} is trained in float32, and this processor computes in "
                    "bfloat16: use float32",
                    form.saved.front()));
  }
  for (Saved& saved : saved_) {
    const Weights::Parameter& parameter = base.parameters()[saved.parameter];
    if (parameter.stored)
      throw ConfigError(fmt::format("modules_to_save: {} is stored as codes",
                                    base.tensors()[parameter.first].name));
    saved.base =
        parameter.vector != nullptr ? parameter.vector->value : parameter.matrix->matrix.values;
    Tensor(saved.copy.value).copy_(saved.base.view(saved.copy.value.sizes()));
  }
}

void AdapterTensors::begin(AdapterInit init, uint64_t seed) {
  const at::NoGradGuard no_grad;
  for (const NamedWeight& weight : weights_.tensors()) {
    const bool is_embedding = weight.name.ends_with(".lora_embedding_B");
    if (!weight.name.ends_with(".lora_A.weight") && !is_embedding) continue;
    const auto inputs = static_cast<double>(weight.full_shape.back());
    const auto rank = static_cast<double>(weight.full_shape[weight.full_shape.size() - 2]);
    const uint64_t stream = xxhash64(weight.name);
    // Of the whole tensor, so that ranks' slices are those of one rank.
    const Tensor whole = at::empty(weight.full_shape, at::kDouble);
    auto* out = whole.mutable_data_ptr<double>();
    for (int64_t i = 0; i < whole.numel(); ++i) {
      const auto counter = static_cast<uint64_t>(i);
      if (is_embedding || init == AdapterInit::kGaussian) {
        out[i] = normal(seed, stream, counter) / (is_embedding ? 1 : rank);
      } else {
        const double bound =
            init == AdapterInit::kXavier ? std::sqrt(6 / (inputs + rank)) : 1 / std::sqrt(inputs);
        out[i] = bound * (2 * uniform(seed, stream, counter) - 1);
      }
    }
    Weights::view(weights_.flat(), weight).copy_(weight.slices.of(whole));
  }
}

}  // namespace slime::model
