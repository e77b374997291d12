// What a group promises, on threads connected by sockets, against sums and copies made by hand.

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <map>
#include <mutex>
#include <numeric>
#include <thread>

#include "comm/ordered_sum.h"
#include "core/error.h"
#include "net/tcp.h"
#include "rank_threads.h"

namespace slime::parity {
namespace {

using namespace comm;
using ::testing::HasSubstr;
using ::testing::StartsWith;

/// x[i] = 100 rank + i: what each element came from can be read off.
Tensor numbers_of(int rank, int64_t n, at::ScalarType type = at::kDouble) {
  return (at::arange(n, at::kLong) + 100 * rank).to(type);
}

Tensor sum_of_numbers(int size, int64_t n) {
  Tensor sum = at::zeros({n}, at::kDouble);
  for (int rank = 0; rank < size; ++rank) sum += numbers_of(rank, n);
  return sum;
}

/// Shards of 5, 4, 3, ... elements, the last one empty when there are several.
std::vector<Range> uneven_shards(int size) {
  std::vector<Range> shards;
  int64_t begin = 0;
  for (int r = 0; r < size; ++r) {
    const int64_t length = r > 0 && r + 1 == size ? 0 : 5 - r;
    shards.push_back({begin, begin + length});
    begin += length;
  }
  return shards;
}

class GroupOfSize : public ::testing::TestWithParam<int> {};

TEST_P(GroupOfSize, AllReduceGivesSumMaximumAndMinimumToAll) {
  const int size = GetParam();
  on_ranks(size, [&](const Mesh& mesh) {
    RankGroup& group = mesh.dp();
    for (const int64_t n : {1, 127, 4096}) {
      Tensor x = numbers_of(group.rank(), n).view({n, 1});
      group.all_reduce_(x, "summing");
      EXPECT_TRUE(at::equal(x, sum_of_numbers(size, n).view({n, 1}))) << n;
      x = numbers_of(group.rank(), n, at::kFloat);
      group.all_reduce_(x, "maximum", Reduction::kMax);
      EXPECT_TRUE(at::equal(x, numbers_of(size - 1, n, at::kFloat)));
      x = numbers_of(group.rank(), n, at::kLong);
      group.all_reduce_(x, "minimum", Reduction::kMin);
      EXPECT_TRUE(at::equal(x, numbers_of(0, n, at::kLong)));
    }
  });
}

TEST_P(GroupOfSize, AllReduceGivesTheSameBitsToAll) {
  const int size = GetParam();
  std::vector<Tensor> results(size);
  on_ranks(size, [&](const Mesh& mesh) {
    at::Generator generator = at::detail::createCPUGenerator(mesh.rank() + 1);
    Tensor x = at::randn({10'007}, generator, at::kFloat);
    mesh.dp().all_reduce_(x, "summing");
    results[mesh.rank()] = x;
  });
  for (const Tensor& x : results) EXPECT_TRUE(at::equal(x, results[0]));
}

TEST_P(GroupOfSize, ReduceScatterSumsEachShardAtItsOwner) {
  const int size = GetParam();
  const std::vector<Range> shards = uneven_shards(size);
  const int64_t n = shards.back().end;
  on_ranks(size, [&](const Mesh& mesh) {
    RankGroup& group = mesh.dp();
    const Tensor x = numbers_of(group.rank(), n);
    group.reduce_scatter_(x, shards, "summing");
    const Range own = shards[group.rank()];
    EXPECT_TRUE(at::equal(x.narrow(0, own.begin, own.size()),
                          sum_of_numbers(size, n).narrow(0, own.begin, own.size())));
  });
}

TEST_P(GroupOfSize, AllGatherAndGatherBringShardsOfAnyTypeTogether) {
  const int size = GetParam();
  const std::vector<Range> shards = uneven_shards(size);
  const int64_t n = shards.back().end;
  for (const auto type : {at::kBFloat16, at::kDouble, at::kInt, at::kByte}) {
    Tensor whole = at::zeros({n}, type);
    for (int r = 0; r < size; ++r) whole.narrow(0, shards[r].begin, shards[r].size()).fill_(r + 1);
    on_ranks(size, [&](const Mesh& mesh) {
      RankGroup& group = mesh.dp();
      const Range own = shards[group.rank()];
      const Tensor mine = at::zeros({n}, type);
      mine.narrow(0, own.begin, own.size()).fill_(group.rank() + 1);
      Tensor x = mine.clone();
      group.all_gather_(x, shards, "gathering");
      EXPECT_TRUE(at::equal(x, whole));
      x = mine.clone();
      const int root = group.size() - 1;
      gather_(group, x, shards, root, "gathering at the last");
      EXPECT_TRUE(at::equal(x, group.rank() == root ? whole : mine));
    });
  }
}

TEST_P(GroupOfSize, BroadcastGivesTheRootsTensorToAll) {
  const int size = GetParam();
  on_ranks(size, [&](const Mesh& mesh) {
    for (int root = 0; root < size; ++root) {
      const Tensor x = numbers_of(mesh.rank(), 12, at::kHalf).view({3, 4});
      mesh.dp().broadcast_(x, root, "handing out");
      EXPECT_TRUE(at::equal(x, numbers_of(root, 12, at::kHalf).view({3, 4})));
    }
  });
}

/// Rows that member `from` has for member `to`; some have none.
int64_t rows_between(int from, int to) { return (3 * from + to) % 4; }

TEST_P(GroupOfSize, AllToAllBringsRowsToTheirOwners) {
  const int size = GetParam();
  on_ranks(size, [&](const Mesh& mesh) {
    const int own = mesh.rank();
    const auto rows = [&](int from, int to) {
      return at::full({rows_between(from, to), 2, 3}, 10 * from + to, at::kBFloat16);
    };
    std::vector<int64_t> in_rows, out_rows;
    std::vector<Tensor> in, expected;
    for (int other = 0; other < size; ++other) {
      in_rows.push_back(rows_between(own, other));
      in.push_back(rows(own, other));
      out_rows.push_back(rows_between(other, own));
      expected.push_back(rows(other, own));
    }
    EXPECT_TRUE(at::equal(all_to_all(mesh.dp(), at::cat(in), in_rows, out_rows, "dispatching"),
                          at::cat(expected)));
  });
}

TEST_P(GroupOfSize, BytesOfAnyLengthAreGatheredInTheOrderOfTheRanks) {
  on_ranks(GetParam(), [&](const Mesh& mesh) {
    std::vector<std::string> expected;
    for (int r = 0; r < mesh.dp().size(); ++r) expected.emplace_back(3 * r, static_cast<char>(r));
    EXPECT_EQ(mesh.dp().all_gather(expected[mesh.rank()], "naming"), expected);
  });
}

TEST_P(GroupOfSize, SmallNumbersAreAddedInTheOrderOfTheRanks) {
  const int size = GetParam();
  double expected = 0;
  for (int r = 0; r < size; ++r) expected += 1.0 / (3 + r);
  on_ranks(size, [&](const Mesh& mesh) {
    EXPECT_EQ(sum(mesh.dp(), 1.0 / (3 + mesh.rank()), "counting"), expected);
    std::map<std::string, double> own{{"all", 1}};
    if (mesh.rank() == 0) own["first"] = 5;
    const auto every = sum(mesh.dp(), own, "counting");
    EXPECT_EQ(every, (std::map<std::string, double>{{"all", size}, {"first", 5}}));
    EXPECT_EQ(sum_of_common(mesh.dp(), own, "counting").contains("first"), size == 1);
  });
}

INSTANTIATE_TEST_SUITE_P(Comm, GroupOfSize, ::testing::Values(1, 2, 3, 4));

TEST(RankGroup, NeighboursSendAndReceiveAtOnce) {
  // Each sends two tensors to the next and takes two from the one before: no order of single calls
  // would be free of waiting for one another.
  on_ranks(3, [](const Mesh& mesh) {
    const int next = (mesh.rank() + 1) % 3, before = (mesh.rank() + 2) % 3;
    const Tensor a = numbers_of(mesh.rank(), 100'000), b = numbers_of(mesh.rank(), 7, at::kInt);
    const Tensor got_a = at::empty_like(a), got_b = at::empty_like(b), none = at::empty({0});
    using enum Message::Direction;
    const std::vector<Message> messages{{kReceive, before, got_a}, {kSend, next, a},
                                        {kSend, next, none},       {kSend, next, b},
                                        {kReceive, before, got_b}, {kReceive, before, none}};
    mesh.dp().exchange(messages, "exchange", "activations");
    EXPECT_TRUE(at::equal(got_a, numbers_of(before, 100'000)));
    EXPECT_TRUE(at::equal(got_b, numbers_of(before, 7, at::kInt)));
  });
}

TEST(RankGroup, MessagesOfOneExchangeShareOneDeadline) {
  // Each of four messages comes 200 ms after the one before: none is late by itself, the exchange is.
  std::string message = "none";
  const auto body = [&](const Mesh& mesh) {
    RankGroup& group = mesh.dp();
    if (mesh.rank() == 1) {
      for (int i = 0; i < 4; ++i) {
        std::this_thread::sleep_for(std::chrono::milliseconds(200));
        send(group, at::ones({10}), 0, "activations");
      }
      return;
    }
    std::vector<Message> messages;
    for (int i = 0; i < 4; ++i)
      messages.push_back({Message::Direction::kReceive, 1, at::empty({10})});
    try {
      group.exchange(messages, "exchange", "activations");
    } catch (const GroupError& error) {
      message = error.what();
      throw;
    }
  };
  EXPECT_THROW(on_ranks(2, body, std::chrono::milliseconds(500)), GroupError);
  EXPECT_EQ(
      message,
      "rank 0: activations: exchange over dp (0 of 2): 2 of 4 messages have moved: 500 ms, the "
      "time for all of them, have passed");
}

TEST(Mesh, HasAGroupForEachAxis) {
  const ParallelLayout layout{.dp = 2, .tp = 2, .pp = 2, .ep = 2};
  std::mutex mutex;
  std::map<int, std::map<std::string, int64_t>> sums;
  on_mesh(layout, [&](const Mesh& mesh) {
    std::map<std::string, int64_t> own;
    for (int i = 0; i < kNumAxes; ++i) {
      const auto axis = static_cast<Axis>(i);
      const Tensor bit = at::full({1}, int64_t{1} << mesh.rank(), at::kLong);
      mesh.group(axis).all_reduce_(bit, "finding out who is there");
      own[name_of(axis)] = bit.item<int64_t>();
      EXPECT_EQ(mesh.group(axis).size(),
                static_cast<int>(members_of(layout, axis, mesh.rank()).size()));
    }
    const std::lock_guard lock(mutex);
    sums[mesh.rank()] = std::move(own);
  });
  for (int rank = 0; rank < 8; ++rank) {
    for (int i = 0; i < kNumAxes; ++i) {
      int64_t expected = 0;
      for (const int member : members_of(layout, static_cast<Axis>(i), rank))
        expected |= int64_t{1} << member;
      EXPECT_EQ(sums[rank][name_of(static_cast<Axis>(i))], expected) << rank << " " << i;
    }
  }
}

TEST(Mesh, OfOneRankIsWithoutConnections) {
  const Mesh& mesh = Mesh::single();
  for (int i = 0; i < kNumAxes; ++i) EXPECT_TRUE(mesh.group(static_cast<Axis>(i)).is_alone());
  EXPECT_EQ(mesh.sizes(), ParallelLayout{});
  EXPECT_EQ(mesh.at(), Coordinates{});
}

/// What the others say when rank 1 does not take part in `operation`.
std::string message_without_rank_1(const ParallelLayout& layout,
                                   const std::function<void(const Mesh&)>& operation) {
  std::string message = "none";
  const auto body = [&](const Mesh& mesh) {
    if (mesh.rank() == 1) {
      std::this_thread::sleep_for(std::chrono::milliseconds(600));
      throw GroupError("left");
    }
    try {
      operation(mesh);
    } catch (const GroupError& error) {
      if (mesh.rank() == 0) message = error.what();
      throw;
    }
  };
  EXPECT_THROW(on_mesh(layout, body, std::chrono::milliseconds(200)), GroupError);
  return message;
}

TEST(RankGroup, EveryOperationHasADeadlineAndSaysRankPurposeOperationAndAxis) {
  const auto x = [] { return at::ones({1000}); };
  const std::vector<Range> shards{{0, 500}, {500, 1000}};
  const std::vector<int64_t> half{500, 500};
  const std::vector<std::pair<const char*, std::function<void(RankGroup&)>>> operations{
      {"all-reduce", [&](RankGroup& g) { g.all_reduce_(x(), "stating"); }},
      {"reduce-scatter", [&](RankGroup& g) { g.reduce_scatter_(x(), shards, "stating"); }},
      {"all-gather", [&](RankGroup& g) { g.all_gather_(x(), shards, "stating"); }},
      {"all-gather", [&](RankGroup& g) { g.all_gather("bytes", "stating"); }},
      {"broadcast", [&](RankGroup& g) { g.broadcast_(x(), 1, "stating"); }},
      {"receive", [&](RankGroup& g) { receive_(g, x(), 1, "stating"); }},
      {"gather", [&](RankGroup& g) { gather_(g, x(), shards, 0, "stating"); }},
      {"all-to-all", [&](RankGroup& g) { all_to_all(g, x(), half, half, "stating"); }},
      {"barrier", [&](RankGroup& g) { g.barrier("stating"); }}};
  for (const auto& [name, operation] : operations) {
    const std::string message =
        message_without_rank_1({.tp = 2}, [&](const Mesh& mesh) { operation(mesh.tp()); });
    EXPECT_THAT(message,
                StartsWith("rank 0: stating: " + std::string(name) + " over tp (0 of 2): "));
  }
}

TEST(RankGroup, ARankThatNobodyMeetsSaysSo) {
  Rendezvous rendezvous;
  try {
    make_socket_mesh({.rank = 0,
                      .layout = {.dp = 2},
                      .port = rendezvous.port(),
                      .connect_timeout = std::chrono::milliseconds(300)},
                     &rendezvous);
    FAIL() << "joined nobody";
  } catch (const GroupError& error) {
    EXPECT_THAT(error.what(), StartsWith("rank 0: joining the ranks over dp: "));
  }
}

/// Two ranks that were given these; what rank 1 is told.
std::string meeting(const std::string& token, int64_t epoch) {
  Rendezvous rendezvous;
  SocketMeshConfig config{.rank = 0,
                          .layout = {.dp = 2},
                          .port = rendezvous.port(),
                          .token = "the run's",
                          .epoch = 3,
                          .connect_timeout = std::chrono::milliseconds(500)};
  std::jthread other([&config, &rendezvous] {
    try {
      make_socket_mesh(config, &rendezvous);
    } catch (const GroupError&) {  // the other has not come
    }
  });
  SocketMeshConfig own = config;
  own.rank = 1;
  own.token = token;
  own.epoch = epoch;
  try {
    make_socket_mesh(own, nullptr);
  } catch (const GroupError& error) {
    return error.what();
  }
  return "";
}

TEST(RankGroup, ARankOfAnotherEpochIsRefusedAndOneOfAnotherRunMeetsNobody) {
  EXPECT_EQ(meeting("the run's", 3), "");
  EXPECT_THAT(meeting("the run's", 2),
              HasSubstr("rank 1 is refused: it is of epoch 2, and the ranks meet in epoch 3"));
  EXPECT_THAT(meeting("another's", 3), StartsWith("rank 1: joining the ranks: "));
}

TEST(RankGroup, StrangersAtTheMeetingTakeNobodysPlaceAndNothingListensAfterIt) {
  Rendezvous rendezvous;
  const int port = rendezvous.port();
  std::vector<int> strangers;
  for (int i = 0; i < 100; ++i) {
    const int socket = net::connect_to(kLoopback, port, std::chrono::seconds(5));
    const std::string claim = std::string(32, 'n') + "\x04rank3 1 -1 4000 127.0.0.1";
    const uint32_t type = 201;
    const uint64_t length = claim.size();
    std::string hello = "SLMF";
    hello.append(reinterpret_cast<const char*>(&type), 4);
    hello.append(reinterpret_cast<const char*>(&length), 8).append(claim);
    if (i % 2 == 0) {
      ASSERT_GT(::send(socket, hello.data(), hello.size(), MSG_NOSIGNAL), 0);
    }
    strangers.push_back(socket);  // and waits
  }
  const auto rank = [&](int own) {
    const auto mesh = make_socket_mesh(
        {.rank = own, .layout = {.dp = 3}, .port = port, .token = "the run's", .epoch = 3},
        own == 0 ? &rendezvous : nullptr);
    const Tensor x = at::full({5}, 10 + own, at::kDouble);
    mesh->dp().all_reduce_(x, "summing");
    EXPECT_EQ(x[4].item<double>(), 33);
    mesh->world().barrier("leaving together");
  };
  {
    std::vector<std::jthread> ranks;
    for (int own = 0; own < 3; ++own) ranks.emplace_back(rank, own);
  }
  EXPECT_THROW(net::connect_to(kLoopback, port, std::chrono::seconds(1)), std::runtime_error);
  for (const int socket : strangers) ::close(socket);
}

TEST(RankGroup, LargeSumsAndBroadcastsAreThoseOfSmallOnes) {
  // Above 64 KB they go in shards; the sums are added in the order of the ranks all the same.
  constexpr int64_t kElements = 3'000'001;
  std::vector<Tensor> given;
  for (int rank = 0; rank < 3; ++rank) {
    at::Generator generator = at::detail::createCPUGenerator(rank + 1);
    given.push_back(at::randn({kElements}, generator, at::kFloat));
  }
  const Tensor sum = given[0] + given[1] + given[2];
  const Tensor short_sum = (given[0].to(at::kBFloat16).to(at::kFloat) + given[1].to(at::kBFloat16) +
                            given[2].to(at::kBFloat16))
                               .to(at::kBFloat16);
  on_ranks(3, [&](const Mesh& mesh) {
    Tensor x = given[mesh.rank()].clone();
    mesh.dp().all_reduce_(x, "summing");
    EXPECT_TRUE(at::equal(x, sum));
    x = given[mesh.rank()].to(at::kBFloat16);
    mesh.dp().all_reduce_(x, "summing");
    EXPECT_TRUE(at::equal(x, short_sum));
    for (int root = 0; root < 3; ++root) {
      x = given[mesh.rank()].clone();
      mesh.dp().broadcast_(x, root, "handing out");
      EXPECT_TRUE(at::equal(x, given[root]));
    }
  });
}

TEST(RankGroup, RanksThatDoNotAgreeOnWhatTravelsFindOut) {
  std::string message = "none";
  const auto body = [&](const Mesh& mesh) {
    if (mesh.rank() == 1) {
      send(mesh.dp(), at::ones({3}, at::kDouble), 0, "activations");
      return;
    }
    try {
      receive_(mesh.dp(), at::empty({4}, at::kDouble), 1, "activations");
    } catch (const GroupError& error) {
      message = error.what();
      throw;
    }
  };
  EXPECT_THROW(on_ranks(2, body, std::chrono::milliseconds(500)), GroupError);
  EXPECT_THAT(message,
              HasSubstr("message 0 of 32 bytes is waited for, and message 0 of 24 bytes came"));
}

}  // namespace
}  // namespace slime::parity
