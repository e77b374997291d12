#include "train/whole_tensors.h"

#include <ATen/ATen.h>
#include <c10/util/accumulate.h>

#include <algorithm>
#include <map>

#include "core/error.h"
#include "core/json.h"
#include "model/weight_layout.h"
#include "train/shards.h"

namespace slime::train {
namespace {

constexpr const char* kWhat = "bringing the slices of the model together";

int64_t product(const std::vector<int64_t>& shape) { return c10::multiply_integers(shape); }

}  // namespace

WholeTensors::WholeTensors(const comm::Mesh& mesh, const model::Weights& weights)
    : mesh_(mesh), weights_(weights) {
  std::map<std::string, std::size_t> index_of;
  const std::vector<model::WeightLayout> all = model::gather_layouts(mesh, weights, kWhat);
  for (int rank = 0; rank < static_cast<int>(all.size()); ++rank) {
    const model::WeightLayout& layout = all[static_cast<std::size_t>(rank)];
    parts_.push_back(sharded_parts(layout.num_elements, layout.experts_begin));
    for (const model::TensorLayout& tensor : layout.tensors) {
      const auto [found, is_new] = index_of.emplace(tensor.name, entries_.size());
      if (is_new) {
        entries_.push_back({tensor.name, tensor.full_shape});
        held_.emplace_back();
      }
      Held held{rank, tensor.shape, tensor.slices, {}};
      held.elements.begin = tensor.offset;
      held.elements.end = held.elements.begin + product(held.shape);
      // Who has the same slices in the same place of another buffer holds a copy: the first of each
      // stage and tensor-parallel rank brings it, with those that have other shards of that buffer.
      const std::vector<int> sharers = sharers_of(held);
      std::vector<Held>& all_held = held_[found->second];
      const bool is_copy = std::ranges::any_of(all_held, [&](const Held& other) {
        return other.slices == held.slices &&
               std::ranges::find(sharers, other.rank) == sharers.end();
      });
      if (!is_copy) all_held.push_back(std::move(held));
    }
  }
}

std::size_t WholeTensors::part_of(const Held& held) const {
  const std::vector<ShardedPart>& parts = parts_[static_cast<std::size_t>(held.rank)];
  return held.elements.begin < parts.front().elements.end ? 0 : 1;
}

std::vector<int> WholeTensors::sharers_of(const Held& held) const {
  const ShardedPart& part = parts_[static_cast<std::size_t>(held.rank)][part_of(held)];
  return comm::members_of(mesh_.sizes(), part.axis, held.rank);
}

WholeTensors::Brought WholeTensors::brought(const Held& held, BufferForm form) const {
  const std::vector<int> sharers = sharers_of(held);
  const auto place =
      static_cast<std::size_t>(std::ranges::find(sharers, held.rank) - sharers.begin());
  Brought out;
  comm::Range has = held.elements;
  if (form == BufferForm::kShards) {
    out.tensor = part_of(held);
    const ShardedPart& part = parts_[static_cast<std::size_t>(held.rank)][out.tensor];
    has = shards_of(part, static_cast<int>(sharers.size()))[place];
    out.begin = has.begin;
  } else if (place > 0) {
    has.end = has.begin;  // the first one brings it
  }
  out.elements = {std::max(has.begin, held.elements.begin), std::min(has.end, held.elements.end)};
  if (out.elements.end < out.elements.begin) out.elements.end = out.elements.begin;
  return out;
}

Tensor WholeTensors::gather(std::size_t index, const HeldBuffer& buffer) const {
  if (mesh_.world().is_alone())
    return model::Weights::view(buffer.tensors.front(), weights_.tensors()[index]);
  comm::RankGroup& world = mesh_.world();
  const int own_rank = world.rank();
  std::vector<comm::Message> messages;
  std::map<model::Slices, std::pair<std::vector<int64_t>, Tensor>> parts;
  for (const Held& held : held_[index]) {
    const Brought has = brought(held, buffer.form);
    const comm::Range& part = has.elements;
    if (part.size() == 0) continue;
    Tensor own;
    if (held.rank == own_rank)
      own = buffer.tensors[has.tensor].narrow(0, part.begin - has.begin, part.size());
    if (own_rank != 0) {
      if (own.defined()) messages.push_back({comm::Message::Direction::kSend, 0, own});
      continue;
    }
    auto& [shape, flat] = parts[held.slices];
    shape = held.shape;
    if (!flat.defined()) flat = at::empty({product(shape)}, buffer.tensors.front().options());
    const Tensor place = flat.narrow(0, part.begin - held.elements.begin, part.size());
    if (own.defined()) {
      place.copy_(own);
    } else {
      messages.push_back({comm::Message::Direction::kReceive, held.rank, place});
    }
  }
  if (!messages.empty()) world.exchange(messages, "gather", kWhat);
  if (own_rank != 0) return {};
  const std::vector<int64_t>& shape = entries_[index].shape;
  if (parts.begin()->first.is_whole()) return parts.begin()->second.second.view(shape);
  const Tensor whole = at::empty(shape, buffer.tensors.front().options());
  for (const auto& [slices, part] : parts) slices.place(part.second.view(part.first), whole);
  return whole;
}

std::vector<model::NamedConstant> whole_constants(const comm::Mesh& mesh,
                                                  const model::Weights& weights) {
  if (mesh.pp().is_alone()) return weights.constants();
  json::object own;
  for (const model::NamedConstant& constant : weights.constants()) {
    const Tensor values = constant.value.cpu().contiguous().view({-1});
    const auto* data = values.const_data_ptr<float>();
    own[constant.name] = {
        {"shape", json::value_from(constant.value.sizes().vec())},
        {"values", json::value_from(std::vector<float>(data, data + values.numel()))}};
  }
  std::vector<model::NamedConstant> all;
  for (const std::string& text : mesh.pp().all_gather(json_text(own), kWhat)) {
    const json::value stage = parse_json(text, kWhat);
    for (const auto& told : stage.as_object()) {
      const auto values = json::value_to<std::vector<float>>(told.value().at("values"));
      const auto shape = json::value_to<std::vector<int64_t>>(told.value().at("shape"));
      all.push_back({std::string(told.key()),
                     at::tensor(at::ArrayRef<float>(values), at::kFloat).view(shape)});
    }
  }
  return all;
}

}  // namespace slime::train
