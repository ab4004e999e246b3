quarrel_test(thread_pool_test LABEL unit threads SOURCES thread_pool_test.cpp LINKS quarrel_base)
