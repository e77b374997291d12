#include "loop/ticket_lock.h"

#include <gtest/gtest.h>

#include <optional>
#include <stdexcept>
#include <thread>
#include <vector>

namespace slime::loop {
namespace {

TEST(TicketLock, IsHeldInTheOrderOfTickets) {
  TicketLock lock;
  std::vector<int> order;  // of who holds the lock
  std::optional<TicketLock::Hold> first(std::in_place, lock);
  std::vector<uint64_t> tickets;
  for (int i = 0; i < 4; ++i) tickets.push_back(lock.take_ticket());
  std::vector<std::jthread> threads;
  for (int i = 3; i >= 0; --i) {
    threads.emplace_back([&, i] {
      const TicketLock::Hold hold(lock, tickets[i]);
      order.push_back(i);
    });
  }
  first.reset();
  threads.clear();
  EXPECT_EQ(order, (std::vector{0, 1, 2, 3}));
}

TEST(TicketLock, AThreadThatComesAgainStandsBehindThoseThatWait) {
  TicketLock lock;
  std::vector<int> order;
  std::optional<TicketLock::Hold> first(std::in_place, lock);
  const uint64_t ticket = lock.take_ticket();
  std::jthread other([&] {
    const TicketLock::Hold hold(lock, ticket);
    order.push_back(1);
  });
  first.reset();
  {
    const TicketLock::Hold again(lock);
    order.push_back(0);
  }
  EXPECT_EQ(order, (std::vector{1, 0}));
}

TEST(TicketLock, AnErrorReleasesIt) {
  TicketLock lock;
  const auto fail = [&] {
    const TicketLock::Hold hold(lock);
    throw std::runtime_error("training failed");
  };
  EXPECT_THROW(fail(), std::runtime_error);
  const TicketLock::Hold next(lock);
  EXPECT_EQ(lock.take_ticket(), 2) << "two had one before";
}

}  // namespace
}  // namespace slime::loop
