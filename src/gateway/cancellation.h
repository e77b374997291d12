#pragma once

/// Cancellation of a handler's waits when its client goes away. Everything on the handler's strand.

#include <functional>
#include <map>
#include <utility>

namespace slime::gateway {

class Cancellation final {
 public:
  bool is_requested() const { return is_requested_; }
  void request() {
    is_requested_ = true;
    for (const auto& [number, end] : std::exchange(ends_, {})) end();
  }

  /// As long as it lives, a request for cancellation calls `end`; at once if there was one.
  class Scope {
   public:
    Scope(Cancellation& cancellation, std::function<void()> end)
        : cancellation_(cancellation), number_(++cancellation.num_scopes_) {
      if (cancellation.is_requested_) {
        end();
      } else {
        cancellation.ends_.emplace(number_, std::move(end));
      }
    }
    ~Scope() { cancellation_.ends_.erase(number_); }
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    Cancellation& cancellation_;
    int number_;
  };

 private:
  bool is_requested_ = false;
  int num_scopes_ = 0;
  std::map<int, std::function<void()>> ends_;
};

}  // namespace slime::gateway
