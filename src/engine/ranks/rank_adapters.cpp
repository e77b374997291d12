#include "engine/ranks/rank_adapters.h"

#include <utility>

#include "core/error.h"
#include "engine/device_copies.h"
#include "model/adapter_files.h"
#include "net/binary.h"

namespace slime::engine {

void load_adapter_on_ranks(model::Network& network, const std::filesystem::path& directory,
                           const comm::Mesh& mesh, Followers* followers) {
  model::load_adapters(network, directory, mesh);
  wait_for_copies(network.weights().flat().device());
  if (followers == nullptr) return;
  const Expected<void> elsewhere =
      followers->ask(RankOrder::kLoadAdapter, std::filesystem::absolute(directory).string());
  if (!elsewhere) throw ConfigError(elsewhere.error().message);
}

void tell_adapter_slots(Followers& followers, int64_t count) {
  net::BinaryWriter out;
  out.put(count);
  followers.tell(RankOrder::kOpenAdapters, out.take());
}

Expected<void> read_adapter_on_followers(Followers& followers,
                                         const std::filesystem::path& directory) {
  return followers.ask(RankOrder::kReadAdapter, std::filesystem::absolute(directory).string());
}

void tell_slot_change(Followers& followers, const SlotChange& change) {
  net::BinaryWriter out;
  out.put(change.emptied);
  out.put(change.slot);
  followers.tell(RankOrder::kChangeAdapters, out.take());
}

void FollowingAdapters::open(model::Network& network, const comm::Mesh& mesh,
                             std::string_view frame) {
  net::BinaryReader in(frame);
  int64_t count = 0;
  in.get(count);
  in.end();
  if (count < 1) throw net::FrameError("adapters have at least one slot");
  open_adapter_slots(network, count);
  reader_.emplace(network, mesh);
}

void FollowingAdapters::read(const std::string& directory) {
  if (!reader_) throw net::FrameError("an adapter is to be read before there are slots");
  read_.reset();
  read_ = reader_->read(directory);
}

void FollowingAdapters::change(model::Network& network, std::string_view frame) {
  net::BinaryReader in(frame);
  SlotChange change;
  in.get(change.emptied);
  in.get(change.slot);
  in.end();
  if (network.adapters() == nullptr || !read_)
    throw net::FrameError("an adapter comes into a slot before it was read");
  change_slots(*network.adapters(), change, std::exchange(read_, nullptr));
}

}  // namespace slime::engine
