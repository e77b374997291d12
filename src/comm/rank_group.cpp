#include "comm/rank_group.h"

#include <ATen/ATen.h>

#include <numeric>

#include "core/error.h"

namespace slime::comm {

using Direction = Message::Direction;

void send(RankGroup& group, const Tensor& x, int to, const char* what) {
  const Message message{Direction::kSend, to, x};
  group.exchange({&message, 1}, "send", what);
}

void receive_(RankGroup& group, const Tensor& x, int from, const char* what) {
  const Message message{Direction::kReceive, from, x};
  group.exchange({&message, 1}, "receive", what);
}

void gather_(RankGroup& group, const Tensor& x_N, std::span<const Range> shards, int root,
             const char* what) {
  check(static_cast<int>(shards.size()) == group.size(), "each member has a shard");
  const auto shard_of = [&](int rank) {
    return x_N.narrow(0, shards[rank].begin, shards[rank].size());
  };
  std::vector<Message> messages;
  if (group.rank() == root) {
    for (int r = 0; r < group.size(); ++r) {
      if (r != root) messages.push_back({Direction::kReceive, r, shard_of(r)});
    }
  } else {
    messages.push_back({Direction::kSend, root, shard_of(group.rank())});
  }
  group.exchange(messages, "gather", what);
}

Tensor all_to_all(RankGroup& group, const Tensor& in, std::span<const int64_t> in_rows,
                  std::span<const int64_t> out_rows, const char* what) {
  const auto size = static_cast<std::size_t>(group.size());
  check(in_rows.size() == size && out_rows.size() == size, "each member has a number of rows");
  check(std::reduce(in_rows.begin(), in_rows.end()) == in.size(0), "every row has an owner");
  if (group.is_alone()) return in;
  std::vector<int64_t> shape = in.sizes().vec();
  shape[0] = std::reduce(out_rows.begin(), out_rows.end());
  const Tensor out = at::empty(shape, in.options());
  std::vector<Message> messages;
  int64_t from = 0, to = 0;
  for (int r = 0; r < group.size(); ++r) {
    const Tensor rows = in.narrow(0, from, in_rows[r]), place = out.narrow(0, to, out_rows[r]);
    if (r == group.rank()) {
      place.copy_(rows);
    } else {
      messages.push_back({Direction::kSend, r, rows});
      messages.push_back({Direction::kReceive, r, place});
    }
    from += in_rows[r];
    to += out_rows[r];
  }
  group.exchange(messages, "all-to-all", what);
  return out;
}

}  // namespace slime::comm
