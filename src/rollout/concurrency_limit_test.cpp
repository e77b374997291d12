#include "rollout/concurrency_limit.h"

#include <gtest/gtest.h>

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/io_context.hpp>
#include <stdexcept>
#include <vector>

namespace slime::rollout {
namespace {

TEST(ConcurrencyLimit, APermitComesBackAlsoWhenSomethingThrows) {
  boost::asio::io_context context(1);
  ConcurrencyLimit limit(1);
  std::vector<int> entered;
  const auto enter = [](ConcurrencyLimit& limit, std::vector<int>& entered,
                        int who) -> boost::asio::awaitable<void> {
    const ConcurrencyLimit::Permit permit = co_await limit.acquire();
    entered.push_back(who);
    if (who < 2) throw std::runtime_error("no");
  };
  for (const int who : {0, 1, 2})
    boost::asio::co_spawn(context, enter(limit, entered, who), [](const std::exception_ptr&) {});
  context.run();
  EXPECT_EQ(entered, (std::vector<int>{0, 1, 2}));
  context.restart();
  boost::asio::co_spawn(context, enter(limit, entered, 3), boost::asio::detached);
  context.run();
  EXPECT_EQ(entered.back(), 3) << "the last permit came back too";
}

}  // namespace
}  // namespace slime::rollout
