quarrel_test(thread_pool_test LABEL unit threads SOURCES thread_pool_test.cpp LINKS quarrel_base)

quarrel_test(cpu_memory_test LABEL unit
  SOURCES aligned_buffer_test.cpp cpu_topology_test.cpp
  LINKS quarrel_base quarrel_test_support)
