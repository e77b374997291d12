#pragma once

/// How fast devices and what connects them are, and who says so. A plan is as good as these.

#include <string>

namespace slime::estimate {

struct Rate {
  double per_second = 0;  // bytes or floating-point operations of one device
  std::string source;
};

struct Rates {
  Rate products{536e12, "train-step-4b on one H200, whole step (docs/benchmarks/h200.json)"};
  Rate expert_products{289e12,
                       "train-step-30b-a3b-8l on one H200, active parameters "
                       "(docs/decisions/0082-experts.md)"};
  Rate link{329e9,
            "all-reduce of 1 GiB between two H100 of one host, bus bandwidth (361 with eight)"};
  Rate network{45e9,
               "not measured: 400 Gb/s a device at nine tenths; say yours with "
               "--network-gb-per-second"};
  double device_bytes = 141e9;  // H200
  double reserved_bytes = 6e9;  // driver, libraries, workspace, fragments (estimated)
};

}  // namespace slime::estimate
