#include "cluster/visible_devices.h"

#include <gtest/gtest.h>

#include "core/error.h"

namespace slime::cluster {
namespace {

TEST(VisibleDevices, WithoutASettingADeviceIsItsIndex) {
  EXPECT_EQ(visible_device(std::nullopt, 0), "0");
  EXPECT_EQ(visible_device(std::nullopt, 11), "11");
}

TEST(VisibleDevices, WhatTheUserHidesStaysHiddenAndItsOrderIsKept) {
  EXPECT_EQ(visible_device("6,2,3", 0), "6");
  EXPECT_EQ(visible_device("6,2,3", 2), "3");
  EXPECT_EQ(visible_device(" 6 , 2 ", 1), "2");
  EXPECT_EQ(visible_device("GPU-8932f937,MIG-4/2", 1), "MIG-4/2");
}

TEST(VisibleDevices, SomeAreThoseBehindTheFirst) {
  EXPECT_EQ(visible_devices(std::nullopt, 2, 3), "2,3,4");
  EXPECT_EQ(visible_devices("6, 2,3", 1, 2), "2,3");
  EXPECT_EQ(visible_devices("6,2,3", 1, 1), "2");
  EXPECT_THROW(visible_devices("6,2,3", 1, 3), BugError);
}

TEST(VisibleDevices, ADeviceThatNobodySeesIsABug) {
  EXPECT_THROW(visible_device("6,2", 2), BugError);
  EXPECT_THROW(visible_device("", 0), BugError);
  EXPECT_THROW(visible_device("6,", 1), BugError);
}

}  // namespace
}  // namespace slime::cluster
