#include "train/whole_tensors.h"

#include <ATen/ATen.h>
#include <c10/util/accumulate.h>

#include <algorithm>
#include <map>

#include "core/error.h"
#include "core/json.h"
#include "train/shards.h"

namespace slime::train {
namespace {

constexpr const char* kWhat = "bringing the slices of the model together";

/// What a rank tells the others about its weights.
std::string to_text(const model::Weights& weights) {
  json::array tensors;
  for (const model::NamedWeight& weight : weights.tensors()) {
    tensors.push_back({{"name", weight.name},
                       {"shape", json::value_from(weight.shape)},
                       {"full_shape", json::value_from(weight.full_shape)},
                       {"slice", {weight.slice.dim, weight.slice.begin, weight.slice.end}},
                       {"offset", weight.offset}});
  }
  return json::serialize(
      json::object{{"num_elements", weights.num_elements()}, {"tensors", std::move(tensors)}});
}

int64_t product(const std::vector<int64_t>& shape) { return c10::multiply_integers(shape); }

}  // namespace

WholeTensors::WholeTensors(const comm::Mesh& mesh, const model::Weights& weights)
    : mesh_(mesh), weights_(weights) {
  std::map<std::string, std::size_t> index_of;
  const std::vector<std::string> texts = mesh.world().all_gather(to_text(weights), kWhat);
  for (int rank = 0; rank < static_cast<int>(texts.size()); ++rank) {
    const json::value told = parse_json(texts[static_cast<std::size_t>(rank)], kWhat);
    num_elements_.push_back(told.at("num_elements").to_number<int64_t>());
    for (const json::value& tensor : told.at("tensors").as_array()) {
      const auto numbers = [&](const char* key) {
        return json::value_to<std::vector<int64_t>>(tensor.at(key));
      };
      const std::string name = json::value_to<std::string>(tensor.at("name"));
      const auto [found, is_new] = index_of.emplace(name, entries_.size());
      if (is_new) {
        entries_.push_back({name, numbers("full_shape")});
        slices_.emplace_back();
      }
      const std::vector<int64_t> slice = numbers("slice");
      Slice held{rank, numbers("shape"), {static_cast<int>(slice[0]), slice[1], slice[2]}, {}};
      held.elements.begin = tensor.at("offset").to_number<int64_t>();
      held.elements.end = held.elements.begin + product(held.shape);
      // Who has the same slice in the same place of another buffer holds a copy: the first of each
      // stage and tensor-parallel rank brings it, with those that have other shards of that buffer.
      const std::vector<int> sharers = comm::members_of(mesh.sizes(), comm::Axis::kDpCp, rank);
      std::vector<Slice>& slices = slices_[found->second];
      const bool is_copy = std::ranges::any_of(slices, [&](const Slice& other) {
        return other.slice == held.slice && std::ranges::find(sharers, other.rank) == sharers.end();
      });
      if (!is_copy) slices.push_back(std::move(held));
    }
  }
}

comm::Range WholeTensors::brought(const Slice& slice, BufferForm form) const {
  const std::vector<int> sharers = comm::members_of(mesh_.sizes(), comm::Axis::kDpCp, slice.rank);
  const auto place =
      static_cast<std::size_t>(std::ranges::find(sharers, slice.rank) - sharers.begin());
  comm::Range has{0, place == 0 ? num_elements_[static_cast<std::size_t>(slice.rank)] : 0};
  if (form == BufferForm::kShard) {
    has = shards_of(num_elements_[static_cast<std::size_t>(slice.rank)],
                    static_cast<int>(sharers.size()))[place];
  }
  comm::Range part{std::max(has.begin, slice.elements.begin),
                   std::min(has.end, slice.elements.end)};
  if (part.end < part.begin) part.end = part.begin;
  return part;
}

Tensor WholeTensors::gather(std::size_t index, const Tensor& buffer, BufferForm form) const {
  if (mesh_.world().is_alone()) return model::Weights::view(buffer, weights_.tensors()[index]);
  comm::RankGroup& world = mesh_.world();
  const int own_rank = world.rank();
  std::vector<comm::Message> messages;
  std::map<int64_t, std::pair<const Slice*, Tensor>> parts;  // by where the slice begins
  for (const Slice& slice : slices_[index]) {
    const comm::Range part = brought(slice, form);
    if (part.size() == 0) continue;
    Tensor own;
    if (slice.rank == own_rank) {
      const int64_t first = form == BufferForm::kShard
                                ? shards_of(num_elements_[static_cast<std::size_t>(own_rank)],
                                            mesh_.dp_cp().size())[mesh_.dp_cp().rank()]
                                      .begin
                                : 0;
      own = buffer.narrow(0, part.begin - first, part.size());
    }
    if (own_rank != 0) {
      if (own.defined()) messages.push_back({comm::Message::Direction::kSend, 0, own});
      continue;
    }
    auto& [holder, flat] = parts[slice.slice.begin];
    holder = &slice;
    if (!flat.defined()) flat = at::empty({product(slice.shape)}, buffer.options());
    const Tensor place = flat.narrow(0, part.begin - slice.elements.begin, part.size());
    if (own.defined()) {
      place.copy_(own);
    } else {
      messages.push_back({comm::Message::Direction::kReceive, slice.rank, place});
    }
  }
  if (!messages.empty()) world.exchange(messages, "gather", kWhat);
  if (own_rank != 0) return {};
  const std::vector<int64_t>& shape = entries_[index].shape;
  const auto& [first, flat] = parts.begin()->second;
  if (first->slice.dim < 0) return flat.view(shape);
  const Tensor whole = at::empty(shape, buffer.options());
  for (const auto& [begin, part] : parts) {
    const model::Slice& slice = part.first->slice;
    whole.narrow(slice.dim, slice.begin, slice.end - slice.begin)
        .copy_(part.second.view(part.first->shape));
  }
  return whole;
}

}  // namespace slime::train
