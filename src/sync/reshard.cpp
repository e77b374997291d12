#include "sync/reshard.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <c10/util/accumulate.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <string>
#include <utility>

#include "core/error.h"

namespace slime::sync {
namespace {

using model::Box;
using model::Slices;
using model::TensorLayout;
using model::WeightLayout;

constexpr const char* kWhat = "new weights for the engines of all ranks";
/// Of the tensors that travel together.
constexpr int64_t kBatchBytes = int64_t{1} << 29;
/// Elements between two tensors of a flat buffer, sent along.
constexpr int64_t kMostPadding = 1024;

const TensorLayout& tensor_of(const WeightLayout& weights, std::size_t index) {
  const std::size_t count = weights.tensors.size();
  return index < count ? weights.tensors[index] : weights.constants[index - count];
}

std::size_t count_of(const WeightLayout& weights) {
  return weights.tensors.size() + weights.constants.size();
}

int64_t volume(const Box& box) {
  int64_t elements = 1;
  for (const comm::Range& range : box) elements *= std::max<int64_t>(0, range.size());
  return elements;
}

Box intersection(const Box& a, const Box& b) {
  Box both;
  for (std::size_t d = 0; d < a.size(); ++d)
    both.push_back({std::max(a[d].begin, b[d].begin), std::min(a[d].end, b[d].end)});
  return both;
}

/// A box of the tensor, in a piece that a rank has of it, as a box of the rank's own.
Box as_own(const Box& box, const Slices::Piece& piece) {
  Box own;
  for (std::size_t d = 0; d < box.size(); ++d) {
    const int64_t shift = piece.own[d].begin - piece.whole[d].begin;
    own.push_back({box[d].begin + shift, box[d].end + shift});
  }
  return own;
}

/// Where a box of what a rank has of a tensor begins in its flat buffer, if it is one run of it;
/// otherwise, and of codes and factors, which are not there, -1.
int64_t run_begin(const TensorLayout& tensor, const Box& box) {
  if (tensor.offset < 0) return -1;
  int64_t begin = 0;
  bool is_cut = false;  // by a dimension before this one: then this one has to be whole
  for (std::size_t d = 0; d < box.size(); ++d) {
    if (is_cut && box[d] != comm::Range{0, tensor.shape[d]}) return -1;
    begin = begin * tensor.shape[d] + box[d].begin;
    is_cut |= box[d].size() > 1;
  }
  return tensor.offset + begin;
}

}  // namespace

/// What a rank has of tensors, as they are stored, and of constants; views.
class Reshard::Views {
 public:
  explicit Views(const model::Weights& weights) {
    for (model::StoredPart& part : model::stored_parts(weights))
      values_.push_back(std::move(part.value));
    for (const model::NamedConstant& constant : weights.constants())
      values_.push_back(constant.value);
  }
  Tensor of(std::size_t index, const Box& box) const { return model::box_of(values_[index], box); }

 private:
  std::vector<Tensor> values_;
};

/// The layouts of what ranks have and of what they need.
class Reshard::Plan {
 public:
  Plan(const comm::Mesh& mesh, const model::Weights& from, const model::Weights& to)
      : have_(model::gather_layouts(mesh, from, kWhat)),
        need_(model::gather_layouts(mesh, to, kWhat)) {
    for (int rank = 0; rank < size(); ++rank) {
      for (std::size_t i = 0; i < count_of(have(rank)); ++i)
        holders_[tensor_of(have(rank), i).name].push_back({rank, i});
    }
  }

  int size() const { return static_cast<int>(have_.size()); }
  const WeightLayout& have(int rank) const { return have_[static_cast<std::size_t>(rank)]; }
  const WeightLayout& need(int rank) const { return need_[static_cast<std::size_t>(rank)]; }

  /// All of the tensor or a slice.
  bool has(int rank, const std::string& name) const {
    const auto holders = holders_.find(name);
    return holders != holders_.end() &&
           std::ranges::find(holders->second, rank, &Holder::rank) != holders->second.end();
  }

  /// Where `rank` gets what it needs as its `target`.
  std::vector<Move> moves_to(int rank, std::size_t target) const {
    const TensorLayout& needed = tensor_of(need(rank), target);
    const std::vector<Slices::Piece> needed_pieces = needed.slices.pieces(needed.full_shape);
    std::vector<Move> moves;
    std::vector<Box> found;
    int64_t volume_found = 0;
    const auto holders = holders_.find(needed.name);
    for (const Holder& holder : nearest_first(holders, rank)) {
      const TensorLayout& held = tensor_of(have(holder.rank), holder.index);
      const bool is_constant = holder.index >= have(holder.rank).tensors.size();
      for (const Slices::Piece& source : held.slices.pieces(held.full_shape)) {
        for (const Slices::Piece& piece : needed_pieces) {
          const Box box = intersection(source.whole, piece.whole);
          if (volume(box) == 0 || std::ranges::find(found, box) != found.end()) continue;
          found.push_back(box);
          volume_found += volume(box);
          const Box source_box = as_own(box, source);
          moves.push_back({holder.rank, rank, holder.index, target, source_box, as_own(box, piece),
                           is_constant ? -1 : run_begin(held, source_box)});
        }
      }
    }
    check(volume_found == c10::multiply_integers(needed.shape),
          "the ranks together have each tensor once");
    return moves;
  }

 private:
  struct Holder {
    int rank = 0;
    std::size_t index = 0;
  };
  using Holders = std::map<std::string, std::vector<Holder>>;

  std::vector<Holder> nearest_first(Holders::const_iterator holders, int rank) const {
    if (holders == holders_.end()) return {};
    std::vector<Holder> all = holders->second;
    std::ranges::stable_sort(all, {},
                             [rank](const Holder& it) { return std::abs(it.rank - rank); });
    return all;
  }

  std::vector<WeightLayout> have_, need_;
  Holders holders_;
};

Reshard::Reshard(const comm::Mesh& mesh, const model::Weights& from, const model::Weights& to)
    : mesh_(mesh), from_(from), to_(to) {
  const Plan plan(mesh, from, to);
  // Names in the order in which the ranks have them: the same everywhere.
  std::map<std::string, std::vector<std::pair<int, std::size_t>>> targets;
  std::vector<std::string> names;
  for (int rank = 0; rank < plan.size(); ++rank) {
    for (std::size_t i = 0; i < count_of(plan.need(rank)); ++i) {
      const std::string& name = tensor_of(plan.need(rank), i).name;
      auto& places = targets[name];
      if (places.empty()) names.push_back(name);
      places.emplace_back(rank, i);
    }
  }
  int64_t bytes = kBatchBytes;                      // of the last batch
  std::map<std::pair<int, int>, std::size_t> last;  // shipment of the batch between two ranks
  for (const std::string& name : names) {
    const auto& places = targets[name];
    const TensorLayout& layout = tensor_of(plan.need(places[0].first), places[0].second);
    const int64_t element = layout.element;
    int64_t size = element;
    for (const int64_t dim : layout.full_shape) size *= dim;
    if (bytes + size > kBatchBytes) {
      batches_.emplace_back();
      last.clear();
      bytes = 0;
    }
    bytes += size;
    std::vector<Shipment>& batch = batches_.back();
    const bool sends = plan.has(mesh.rank(), name);
    for (const auto& [rank, target] : places) {
      if (!sends && rank != mesh.rank()) continue;
      for (Move& move : plan.moves_to(rank, target)) {
        if (move.to != mesh.rank() && move.from != mesh.rank()) continue;
        const int64_t elements = volume(move.source_box);
        const comm::Range run{move.begin, move.begin + elements};
        if (move.to == mesh.rank() && move.from != move.to) bytes_received_ += elements * element;
        const auto [found, is_first] = last.emplace(std::pair(move.from, move.to), batch.size());
        Shipment* before = is_first ? nullptr : &batch[found->second];
        if (before != nullptr && move.begin >= 0 && before->run.size() > 0 &&
            run.begin >= before->run.end && run.begin - before->run.end < kMostPadding) {
          before->run.end = run.end;
          before->moves.push_back(std::move(move));
          continue;
        }
        found->second = batch.size();
        batch.push_back({{std::move(move)}, run.begin >= 0 ? run : comm::Range{}});
      }
    }
  }
}

void Reshard::run() const {
  const at::NoGradGuard no_grad;
  const Views from(from_), to(to_);
  for (const std::vector<Shipment>& shipments : batches_) run(shipments, from, to);
  mesh_.world().barrier(kWhat);
}

void Reshard::run(const std::vector<Shipment>& shipments, const Views& from,
                  const Views& to) const {
  using Direction = comm::Message::Direction;
  const at::Device device = from_.flat().device();
  std::vector<comm::Message> messages;
  std::vector<std::pair<Tensor, Tensor>> copies;  // to where, what
  for (const Shipment& shipment : shipments) {
    const Move& first = shipment.moves.front();
    const comm::Range& run = shipment.run;
    if (shipment.from() == shipment.to()) {
      for (const Move& move : shipment.moves)
        copies.emplace_back(to.of(move.target, move.target_box),
                            from.of(move.source, move.source_box));
    } else if (shipment.from() == mesh_.rank()) {
      const Tensor sent = run.size() > 0 ? from_.flat().narrow(0, run.begin, run.size())
                                         : from.of(first.source, first.source_box).contiguous();
      messages.push_back({Direction::kSend, shipment.to(), sent});
    } else {
      const Tensor place = to.of(first.target, first.target_box);
      const bool is_in_place =
          shipment.moves.size() == 1 && place.device() == device && place.is_contiguous();
      const auto options = place.options().device(device);
      const Tensor taken = is_in_place      ? place
                           : run.size() > 0 ? at::empty({run.size()}, options)
                                            : at::empty(place.sizes(), options);
      messages.push_back({Direction::kReceive, shipment.from(), taken});
      if (is_in_place) continue;
      for (const Move& move : shipment.moves) {
        const Tensor its_place = to.of(move.target, move.target_box);
        copies.emplace_back(
            its_place,
            run.size() > 0
                ? taken.narrow(0, move.begin - run.begin, its_place.numel()).view(its_place.sizes())
                : taken);
      }
    }
  }
  if (!messages.empty()) mesh_.world().exchange(messages, "reshard", kWhat);
  for (const auto& [place, part] : copies) place.copy_(part);
}

}  // namespace slime::sync
