#pragma once

/// Data-parallel ranks as threads of a test, connected by Gloo as processes are.

#include <exception>
#include <functional>
#include <thread>
#include <vector>

#include "train/gloo_ranks.h"

namespace slime::parity {

/// Calls body(ranks) on `size` threads; what one of them throws is thrown here.
inline void on_ranks(int size, const std::function<void(train::Ranks&)>& body,
                     std::chrono::milliseconds timeout = std::chrono::seconds(60)) {
  if (size == 1) {
    train::OneRank alone;
    return body(alone);
  }
  train::Rendezvous rendezvous;
  const int port = rendezvous.port();
  std::vector<std::exception_ptr> errors(size);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank) {
    threads.emplace_back([&, rank] {
      try {
        const auto ranks = train::make_gloo_ranks({.rank = rank,
                                                   .size = size,
                                                   .port = port,
                                                   .connect_timeout = std::chrono::seconds(60),
                                                   .timeout = timeout},
                                                  rank == 0 ? &rendezvous : nullptr);
        body(*ranks);
        ranks->all_gather("", "leaving together");
      } catch (...) {
        errors[rank] = std::current_exception();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const std::exception_ptr& error : errors) {
    if (error) std::rethrow_exception(error);
  }
}

}  // namespace slime::parity
